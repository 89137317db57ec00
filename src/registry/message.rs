//! The calls of one assistant message, waited for together.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::guard::{Answer, Work};
use crate::reply::Reply;

/// A call of a message on its way.
pub(super) enum Waiting<F> {
    Refused(Reply),
    For(Arc<Work>, F),
    Done(Arc<Work>, Answer),
}

/// A call of a message whose answer is known.
pub(super) enum Answered {
    Refused(Reply),
    With(Arc<Work>, Answer),
}

/// Waits for all of them, whatever the order in which they end.
pub(super) async fn all<F: Future<Output = Answer> + Unpin>(mut waiting: Vec<Waiting<F>>) -> Vec<Answered> {
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for call in &mut waiting {
            let Waiting::For(work, answer) = call else { continue };
            match Pin::new(answer).poll(cx) {
                Poll::Ready(answer) => *call = Waiting::Done(Arc::clone(work), answer),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let answered = |call| match call {
        Waiting::Refused(reply) => Some(Answered::Refused(reply)),
        Waiting::Done(work, answer) => Some(Answered::With(work, answer)),
        Waiting::For(..) => None,
    };
    waiting.into_iter().filter_map(answered).collect()
}
