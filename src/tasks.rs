//! Tasks: the only place that spawns. Every task is tracked, stands in the span of whoever started it, and a panic in one
//! is an error of that one.
use std::{cell::Cell, future::Future};
use tokio::task::{JoinError, JoinSet};
use tracing::{Instrument as _, Span};

/// A set of running tasks, each ending in a `T`. Dropping it aborts them.
#[derive(Debug)]
pub struct Tasks<T>(JoinSet<T>);

/// A task that panicked; the text is the panic's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a task panicked: {0}")]
pub struct Panicked(pub String);

impl<T: Send + 'static> Default for Tasks<T> {
    fn default() -> Tasks<T> {
        Tasks(JoinSet::new())
    }
}

impl<T: Send + 'static> Tasks<T> {
    /// Starts a task; it runs whether or not anybody waits. A panic in it is given to `on_panic`, whose answer is the
    /// task's end, so that a set never loses a task.
    pub fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static, on_panic: impl FnOnce(Panicked) -> T + Send + 'static) {
        use futures_util::FutureExt as _;
        let guarded = async move {
            match std::panic::AssertUnwindSafe(task).catch_unwind().await {
                Ok(end) => end,
                Err(payload) => on_panic(Panicked(panic_text(payload.as_ref()))),
            }
        };
        self.0.spawn(guarded.in_current_span());
    }

    /// Waits for the next task to end; `None` at once where there is none.
    pub async fn next(&mut self) -> Option<T> {
        loop {
            match self.0.join_next().await? {
                Ok(end) => return Some(end),
                Err(_aborted) => {}
            }
        }
    }

    /// Returns whether no task is running.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many tasks are running.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

thread_local! {
    static IN_ONE_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Runs something during which blocking work that this thread waits for is done on the spot: on a scheduler with one thread
/// nothing then happens at the same time as anything else, and what happens follows from what it is given alone.
pub fn in_one_thread<T>(run: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IN_ONE_THREAD.set(self.0);
        }
    }
    let _before = Before(IN_ONE_THREAD.replace(true));
    run()
}

/// The result of what a thread does aside.
pub type Aside<T> = tokio::sync::oneshot::Receiver<T>;

/// Does work on a thread of its own that no runtime waits for, and that ends with the process at the latest: for what others
/// may hold up as long as they like. A panic in it is an error of whoever waits for its result.
///
/// # Errors
/// Where there are no more threads.
pub fn aside<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> std::io::Result<Aside<T>> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // Nobody may wait for it any more.
    std::thread::Builder::new().name(name.to_owned()).spawn(move || drop(sender.send(work())))?;
    Ok(receiver)
}

/// Runs blocking work (files, git, a database) off the scheduler's thread and waits for it.
///
/// # Errors
/// `Panicked` where the work panicked.
#[expect(clippy::disallowed_methods, reason = "this module is the one place that spawns")]
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Panicked> {
    if IN_ONE_THREAD.get() {
        return std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|payload| Panicked(panic_text(payload.as_ref())));
    }
    let span = Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work)).await.map_err(|error| Panicked(join_text(error)))
}

fn join_text(error: JoinError) -> String {
    error.try_into_panic().map_or_else(|_| "it was aborted".to_owned(), |payload| panic_text(payload.as_ref()))
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    payload.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}
