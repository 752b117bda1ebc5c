//! A server with TLS: whom the agent believes, and whom it does not.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use axum::serve::Listener;
use engine::sync::Desired;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::harness::{Server, runtime};

/// Connections of a listener, once they speak TLS; those that do not are dropped.
pub struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    pub fn new(tcp: TcpListener, config: Arc<ServerConfig>) -> Self {
        Self { tcp, acceptor: config.into() }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/agent/certificates").join(name)
}

/// What a server with this certificate serves with.
fn config(name: &str) -> Arc<ServerConfig> {
    let chain = vec![CertificateDer::from_pem_file(certificate(name)).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

#[test]
fn a_server_for_which_the_given_authority_vouches_is_obeyed() {
    runtime().block_on(async {
        let server = Server::start_with(Some(config("server.crt"))).await;
        let mut agent = server.agent(&["bash", "-c", "exit 7"], |command| {
            command.env("HOLDFAST_AGENT_SERVER_CA_FILE", certificate("ca.crt"));
        });
        server.run(0).await;
        server.exited(0, 0).await;
        server.stopped(0).await;
        server.go_away();
        server.come_back().await;
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 7);
    });
}

#[test]
fn a_server_that_cannot_prove_who_it_is_is_told_nothing() {
    for (name, why) in [("stranger.crt", "UnknownIssuer"), ("elsewhere.crt", "not valid for name")] {
        runtime().block_on(async {
            let server = Server::start_with(Some(config(name))).await;
            let mut agent = server.agent(&["true"], |command| {
                command.env("HOLDFAST_AGENT_SERVER_CA_FILE", certificate("ca.crt"));
                command.env("HOLDFAST_AGENT_OFFLINE_LIMIT_SECONDS", "1");
            });
            assert_eq!(agent.exit().await, 1);
            assert!(agent.said().contains(why), "{}", agent.said());
            server.change(|known| assert_eq!((known.answered, known.rejected), (0, 0), "nothing was sent"));
        });
    }
}

#[test]
fn a_file_without_authorities_is_named_at_the_start() {
    runtime().block_on(async {
        let server = Server::start().await;
        let file = server.dir().join("authorities");
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for text in [None, Some("no certificate"), Some(nonsense)] {
            text.into_iter().for_each(|text| fs::write(&file, text).unwrap());
            let mut agent = server.agent(&["true"], |command| {
                command.env("HOLDFAST_AGENT_SERVER_CA_FILE", &file);
            });
            assert_eq!(agent.exit().await, 2, "{text:?}");
            assert!(agent.said().contains("authorities"), "{}", agent.said());
        }
    });
}
