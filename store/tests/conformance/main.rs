//! One suite over both backends in the same run: what the store promises, whatever is below.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails as the test does: at once and loudly")]

mod append;
mod concurrency;
mod fixture;
mod model;
mod pages;
mod sessions;
mod settle;
mod text;
mod turns;
mod vectors;

/// Makes a test on each backend of every function named.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::fixture::sqlite().await).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::fixture::postgres().await).await;
            })+
        }
    };
}
pub(crate) use on_both;
