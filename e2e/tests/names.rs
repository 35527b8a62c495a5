//! Names that are used again.

use agentsession_e2e::{Draft, Stream, replay, run, wait::seconds};
use kube::api::PropagationPolicy;

use crate::common::{WELL, has_said, stored};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_created_anew_under_its_name_shares_nothing() {
    run("again", async |t| {
        let operator = t.operator().await?;
        let first = t.apply(Draft::new("again").turn("- say: first\n- wait: 10m\n")).await?;
        has_said(t, &first, 1).await?;
        first.delete(PropagationPolicy::Background).await?;
        first.gone(seconds(75)).await?;
        let second = t.apply(Draft::new("again").turn("- say: second\n")).await?;
        assert_ne!(first.uid, second.uid);
        let status = second.finished().await?;
        assert_eq!((status.turn(1)?.summary().as_str(), status.attempt, status.turns.len()), (WELL, 1, 1));
        let (old, new) = (stored(t, &first).await?, stored(t, &second).await?);
        assert_eq!((old.text(1), new.text(1)), ("first".into(), "second".into()));
        assert_eq!((old.parts[0].seq.0, new.parts[0].seq.0), (1, 1));
        // The name means the living one; the other is there by its UID.
        let stream = Stream::replay(t, &operator, &second).await?;
        assert_eq!(stream.deltas(), ["second"]);
        let url = format!("{}?uid={}", replay::url(&operator, &first, "stream"), first.uid);
        let answer = replay::get(&url, Some(&replay::reader_token(t).await?)).await?;
        assert_eq!(Stream::parse(answer.body)?.deltas(), ["first"]);
        Ok(())
    })
    .await;
}
