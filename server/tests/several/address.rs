//! One address for all servers, as a Service has it: each new connection goes to the next of them.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::net::{TcpListener, TcpStream};

/// The address; it is served until the test ends.
pub struct Address {
    pub url: String,
    behind: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Address {
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let behind = Arc::<Mutex<Vec<SocketAddr>>>::default();
        tokio::spawn(serve(listener, Arc::clone(&behind)));
        Self { url, behind }
    }

    /// These are behind it from now on; connections that are open stay.
    pub fn set(&self, servers: impl IntoIterator<Item = SocketAddr>) {
        *self.behind.lock().unwrap() = servers.into_iter().collect();
    }
}

async fn serve(listener: TcpListener, behind: Arc<Mutex<Vec<SocketAddr>>>) {
    let next = AtomicUsize::new(0);
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let servers = behind.lock().unwrap().clone();
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(server) = servers.get(number % servers.len().max(1)).copied() else { continue };
        tokio::spawn(async move {
            // Either end may be gone at any time; the other one is told by the end of its connection.
            if let Ok(mut server) = TcpStream::connect(server).await {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
