//! The server on a thread of its own, for tests that drive the program from outside: that one has its own scheduler.
use super::{Answer, Asked, Delivery, Server};
use std::{ops::Deref, thread::JoinHandle};
use tokio::sync::oneshot;

/// A server that runs beside whatever the test does.
pub(crate) struct Hosted {
    server: Server,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Hosted {
    /// Starts a server whose answers travel as told.
    pub(crate) fn start(respond: impl Fn(&Asked) -> (Answer, Delivery) + Send + Sync + 'static) -> Hosted {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                ready.send(Server::start_with(respond).await).ok().unwrap();
                let _ = stopped.await;
            });
        });
        Hosted { server: is_ready.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }
}

impl Deref for Hosted {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
