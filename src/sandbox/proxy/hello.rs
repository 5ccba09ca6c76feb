//! The first words of a client that speaks TLS: which host it asks for in them.
use rustls::server::Acceptor;

/// How a client that speaks TLS begins: a record of the handshake.
const HANDSHAKE: u8 = 0x16;

/// What is known of the first words so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It takes more to tell.
    More,
    /// They are TLS, and ask for this host, if for any.
    Host(Option<String>),
    /// They are no TLS.
    Other,
}

/// Reads first words as they come.
#[derive(Default)]
pub(super) struct Hello {
    acceptor: Acceptor,
    begun: bool,
}

impl Hello {
    /// Takes the next bytes and says what is known with them.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Said {
        if !std::mem::replace(&mut self.begun, true) && bytes.first() != Some(&HANDSHAKE) {
            return Said::Other;
        }
        while !bytes.is_empty() {
            if !matches!(self.acceptor.read_tls(&mut bytes), Ok(1..)) {
                return Said::Other;
            }
            match self.acceptor.accept() {
                Ok(Some(accepted)) => return Said::Host(accepted.client_hello().server_name().map(str::to_owned)),
                Ok(None) => {}
                Err(_) => return Said::Other,
            }
        }
        Said::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::sync::Arc;

    fn hello(host: &str) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider())).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(config), host.to_owned().try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_host_is_told_however_the_bytes_come() {
        for (host, said) in [("pypi.org", Some("pypi.org")), ("127.0.0.1", None)] {
            let bytes = hello(host);
            for size in [1, 7, bytes.len()] {
                let mut hello = Hello::default();
                let chunks: Vec<Said> = bytes.chunks(size).map(|chunk| hello.take(chunk)).collect();
                let (last, before) = chunks.split_last().unwrap();
                assert_eq!(*last, Said::Host(said.map(str::to_owned)));
                assert!(before.iter().all(|said| *said == Said::More));
            }
        }
        assert_eq!(Hello::default().take(b"SSH-2.0-x\r\n"), Said::Other);
        assert_eq!(Hello::default().take(&[HANDSHAKE, 3, 1, 0, 4, 2, 0, 0, 0]), Said::Other);
    }
}
