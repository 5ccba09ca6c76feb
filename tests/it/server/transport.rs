//! Just enough HTTP/1.1: one request after another on a connection, bodies of answers in chunks.
use super::{Answer, Asked, Delivery, Shared};
use std::{collections::BTreeMap, fmt::Write as _, io};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const MAX_REQUEST: usize = 64 * 1024 * 1024;

/// Serves one connection until it ends or breaks as told.
pub(super) async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some(asked) = read(&mut stream, &mut buffer).await? {
        let _running = Running::start(shared);
        let said = asked.clone();
        let (answer, delivery) = shared.answer(asked);
        if delivery.is_mute {
            std::future::pending::<()>().await;
        }
        if !delivery.after.is_zero() {
            tokio::time::sleep(delivery.after).await;
        }
        if delivery.meet > 0 {
            shared.met.send_modify(|met| *met += 1);
            let _ = shared.met.subscribe().wait_for(|met| *met >= delivery.meet).await;
        }
        let (status, headers, body) = match answer {
            Answer::Say(reply) => (200, Vec::new(), reply.bytes(&said)),
            Answer::Stream(bytes) => (200, Vec::new(), bytes),
            Answer::Status(status, headers, body) => (status, headers, body.into_bytes()),
        };
        let kind = if status == 200 { "text/event-stream" } else { "application/json" };
        let mut head = format!("HTTP/1.1 {status} Status\r\ntransfer-encoding: chunked\r\nrequest-id: req_1\r\n");
        if headers.iter().all(|(name, _)| *name != "content-type") {
            let _ = write!(head, "content-type: {kind}\r\n");
        }
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await?;
        if !send(&mut stream, &body, delivery).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends a body; false where the connection is to break.
async fn send(stream: &mut TcpStream, body: &[u8], delivery: Delivery) -> io::Result<bool> {
    let end = delivery.cut_at.or(delivery.stall_at).unwrap_or(body.len()).min(body.len());
    for piece in body[..end].chunks(delivery.chunk.unwrap_or(usize::MAX).max(1)) {
        stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
        stream.write_all(piece).await?;
        stream.write_all(b"\r\n").await?;
        stream.flush().await?;
    }
    if delivery.stall_at.is_some() {
        std::future::pending::<()>().await;
    }
    if delivery.cut_at.is_some() && !delivery.is_clean {
        return Ok(false);
    }
    stream.write_all(b"0\r\n\r\n").await?;
    stream.flush().await?;
    Ok(true)
}

/// Reads one request; `None` where the client is done.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Asked>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await? == 0 || buffer.len() > MAX_REQUEST {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let headers: BTreeMap<String, String> =
        lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned())).collect();
    let length: usize = headers.get("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await? == 0 || buffer.len() > MAX_REQUEST {
            return Ok(None);
        }
    }
    let body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    let json = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(Asked { number: 0, path, headers, body, json, problems: Vec::new() }))
}

/// Counts a request while it is being answered.
struct Running<'a>(&'a Shared);

impl<'a> Running<'a> {
    fn start(shared: &'a Shared) -> Running<'a> {
        let mut running = shared.running.lock().expect("no holder panics");
        running.0 += 1;
        running.1 = running.1.max(running.0);
        Running(shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().expect("no holder panics").0 -= 1;
    }
}
