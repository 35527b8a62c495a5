//! One upgraded connection: WebSocket frames from the server are read and may be kept back, the client's bytes pass as they are.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};

use super::{Fault, HUNG};

/// Channel of the remote command's standard output.
const STDOUT: u8 = 1;
/// Channel of the final status.
const STATUS: u8 = 3;
/// Opcode of binary data.
const BINARY: u8 = 2;

/// What becomes of the connection after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// More frames.
    Go,
    /// It is over for both.
    End,
    /// Nothing more, without an end.
    Hang,
}

/// Passes bytes both ways until one side ends or the fault says so.
///
/// # Errors
/// When a side breaks.
pub async fn run(
    client: impl AsyncRead + AsyncWrite + Unpin,
    server: impl AsyncRead + AsyncWrite + Unpin,
    fault: Option<Fault>,
) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let up = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let down = async {
        let mut frames = Frames { fault, seen: 0, said: false };
        let mut buffer = BytesMut::new();
        loop {
            while let Some(length) = whole_frame(&buffer) {
                let frame = buffer.split_to(length);
                match frames.pass(&frame, &mut to_client).await? {
                    Next::Go => {}
                    next => return Ok(next),
                }
            }
            if from_server.read_buf(&mut buffer).await? == 0 {
                to_client.shutdown().await?;
                return Ok::<_, std::io::Error>(Next::End);
            }
        }
    };
    tokio::pin!(up, down);
    let (next, client_speaks) = tokio::select! {
        // The client's end of speech is no end of listening.
        result = &mut up => { result?; (down.await?, false) }
        next = &mut down => (next?, true),
    };
    if next == Next::Hang && client_speaks {
        // It is the client who gives up, sooner or later.
        tokio::time::timeout(HUNG, up).await.ok();
    }
    Ok(())
}

/// Frames from the server.
struct Frames {
    fault: Option<Fault>,
    seen: u64,
    said: bool,
}

impl Frames {
    async fn pass(&mut self, frame: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<Next> {
        let payload = payload(frame);
        let channel = (frame[0] & 0xf == BINARY).then(|| payload.first().copied()).flatten();
        let output = if channel == Some(STDOUT) { payload.len() as u64 - 1 } else { 0 };
        let before = self.seen;
        self.seen += output;
        let falls = |after: u64| output > 0 && self.seen > after;
        match self.fault {
            Some(Fault::Cut { after }) if falls(after) => {
                let kept = frame.len() - payload.len() + usize::try_from(after.saturating_sub(before)).unwrap_or(0);
                to.write_all(&frame[..kept]).await?;
                to.flush().await?;
                return Ok(Next::End);
            }
            Some(Fault::Close { after }) if falls(after) => {
                // FIN, close, status code 1000.
                to.write_all(&[0x88, 2, 0x03, 0xe8]).await?;
                to.shutdown().await?;
                return Ok(Next::End);
            }
            Some(Fault::Hang { after }) if falls(after) => return Ok(Next::Hang),
            Some(Fault::StatusFirst { after }) if falls(after) && !self.said => {
                self.said = true;
                let status = br#"{"metadata":{},"status":"Success"}"#;
                to.write_all(&[0x82, u8::try_from(status.len() + 1).unwrap_or(u8::MAX), STATUS]).await?;
                to.write_all(status).await?;
            }
            Some(Fault::NoStatus) if channel == Some(STATUS) => return Ok(Next::Go),
            Some(Fault::Throttle { per_second }) if output > 0 => {
                tokio::time::sleep(Duration::from_micros(output * 1_000_000 / per_second.max(1))).await;
            }
            _ => {}
        }
        to.write_all(frame).await?;
        to.flush().await?;
        Ok(Next::Go)
    }
}

/// The length of the first frame when all of it is there. Frames from a server carry no mask.
fn whole_frame(buffer: &[u8]) -> Option<usize> {
    let (head, length) = sizes(buffer)?;
    let whole = head.checked_add(length)?;
    (buffer.len() >= whole).then_some(whole)
}

fn payload(frame: &[u8]) -> &[u8] {
    sizes(frame).map_or(&[], |(head, _)| &frame[head..])
}

/// Length of header and of payload.
fn sizes(mut buffer: &[u8]) -> Option<(usize, usize)> {
    let short = *buffer.get(1)? & 0x7f;
    buffer.advance(2);
    match short {
        126 if buffer.remaining() >= 2 => Some((4, usize::from(buffer.get_u16()))),
        127 if buffer.remaining() >= 8 => Some((10, usize::try_from(buffer.get_u64()).ok()?)),
        126 | 127 => None,
        short => Some((2, usize::from(short))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(channel: u8, data: &[u8]) -> Vec<u8> {
        let length = data.len() + 1;
        let mut frame = vec![0x82];
        if length < 126 {
            frame.push(u8::try_from(length).unwrap());
        } else {
            frame.push(126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        frame.push(channel);
        frame.extend(data);
        frame
    }

    /// What a client gets of these frames under a fault, when the server then ends.
    async fn received(fault: Option<Fault>) -> Vec<u8> {
        let (client, proxy_client) = tokio::io::duplex(1 << 20);
        let (server, proxy_server) = tokio::io::duplex(1 << 20);
        let relay = tokio::spawn(run(proxy_client, proxy_server, fault));
        let (mut from_proxy, _to_proxy) = split(client);
        let (_, mut to_proxy) = split(server);
        for frame in [frame(1, b"hello"), frame(1, &[b'x'; 300]), frame(3, b"{}")] {
            to_proxy.write_all(&frame).await.unwrap();
        }
        to_proxy.shutdown().await.unwrap();
        let mut all = Vec::new();
        tokio::time::timeout(Duration::from_millis(200), from_proxy.read_to_end(&mut all)).await.ok();
        relay.abort();
        all
    }

    #[tokio::test]
    async fn faults_fall_where_they_are_told_to() {
        let whole = [frame(1, b"hello"), frame(1, &[b'x'; 300]), frame(3, b"{}")].concat();
        assert_eq!(received(None).await, whole);
        assert_eq!(received(Some(Fault::Throttle { per_second: 1 << 20 })).await, whole);
        let head = frame(1, b"hello").len();
        // The header of the second frame, its channel is the first byte of its payload; 7 - 5 bytes of output are 2 more.
        assert_eq!(received(Some(Fault::Cut { after: 7 })).await, whole[..head + 4 + 2]);
        assert_eq!(received(Some(Fault::Hang { after: 5 })).await, whole[..head]);
        assert_eq!(received(Some(Fault::Close { after: 5 })).await, [&whole[..head], &[0x88, 2, 3, 0xe8]].concat());
        assert_eq!(received(Some(Fault::NoStatus)).await, whole[..whole.len() - frame(3, b"{}").len()]);
        let early = received(Some(Fault::StatusFirst { after: 5 })).await;
        let status = frame(3, br#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(early, [&whole[..head], &status, &whole[head..]].concat());
    }

    #[test]
    fn a_frame_is_whole_when_its_last_byte_is_there() {
        let frame = frame(1, &[0; 1000]);
        assert_eq!(whole_frame(&frame), Some(frame.len()));
        assert_eq!(whole_frame(&frame[..frame.len() - 1]), None);
        assert_eq!(whole_frame(&frame[..3]), None);
        assert_eq!(whole_frame(&[]), None);
    }
}
