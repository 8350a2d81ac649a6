//! Ctrl-C and its like: the work stops at once, what it made is cleaned up by
//! whoever made it, and the exit code says which signal it was.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Failure, Kind, Result};

/// Runs `work` until it is done or a signal asks to stop; `work` is dropped
/// then.
pub async fn or_stop<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let listen = |kind: SignalKind| {
        signal(kind).map_err(|error| Failure::error(format!("signals cannot be received: {error}")))
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let number = tokio::select! {
        done = work => return done,
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
        _ = hangup.recv() => 1,
    };
    Err(Failure {
        kind: Kind::Interrupted(number),
        message: "stopped before an answer came".to_owned(),
        hint: Some("what was asked may still have been done; `git claims --mine` tells".to_owned()),
        reply: None,
    })
}
