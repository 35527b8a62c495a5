//! What a thread logs, as text.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// Everything from `trace` on, of this thread, until the value is dropped.
pub struct Captured {
    log: Log,
    _guard: tracing::subscriber::DefaultGuard,
}

pub fn capture() -> Captured {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    Captured { log, _guard: tracing_subscriber::util::SubscriberInitExt::set_default(subscriber) }
}

impl Captured {
    pub fn text(&self) -> String {
        String::from_utf8(self.log.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
