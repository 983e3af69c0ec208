//! Two bare quinn hops in a row: the floor of what passes through a gateway. The middle passes
//! bytes on as they come; TLS and transport settings as in [`echo`], with windows as
//! large as ours.

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream};

use crate::echo;

/// Bytes given to quinn at once.
const PIECE_LEN_BYTES: usize = 256 * 1024;
/// What a client asks for: so many bytes down.
const DOWN: u8 = 0;
/// So many bytes up.
const UP: u8 = 1;

/// Starts both hops and connects to the first.
pub async fn connect() -> Connection {
    let far = echo::connect_to(serve_end).await;
    echo::connect_to(move |connection| serve_middle(far, connection)).await
}

/// The same with the middle and the far end each on a thread and a runtime of its own: what is
/// asked wakes one thread after the other, as it does with processes.
pub async fn connect_apart() -> Connection {
    let end = on_a_thread(|| echo::listen(serve_end)).await;
    let middle = on_a_thread(|| {
        echo::listen(
            |connection| async move { serve_middle(echo::dial(end).await, connection).await },
        )
    });
    echo::dial(middle.await).await
}

/// Calls `start` on a thread with a runtime that goes on until the process ends.
async fn on_a_thread<T: Send + 'static>(start: impl FnOnce() -> T + Send + 'static) -> T {
    let (started, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            // Fails only where the benchmark has ended.
            let _ = started.send(start());
            std::future::pending::<()>().await;
        });
    });
    result.await.expect("it starts")
}

async fn serve_end(connection: Connection) {
    while let Ok((send, recv)) = connection.accept_bi().await {
        tokio::spawn(end(send, recv));
    }
}

async fn serve_middle(far: Connection, connection: Connection) {
    while let Ok((send, recv)) = connection.accept_bi().await {
        tokio::spawn(pass(far.clone(), send, recv));
    }
}

/// Moves bytes towards the client; answers how many came.
pub async fn down(connection: &Connection, len_bytes: u64) -> u64 {
    ask(connection, DOWN, len_bytes).await
}

/// Moves bytes away from the client; answers how many arrived.
pub async fn up(connection: &Connection, len_bytes: u64) -> u64 {
    ask(connection, UP, len_bytes).await
}

async fn ask(connection: &Connection, way: u8, len_bytes: u64) -> u64 {
    let (mut send, mut recv) = connection.open_bi().await.expect("a stream");
    let mut header = vec![way];
    header.extend_from_slice(&len_bytes.to_le_bytes());
    send.write_all(&header).await.expect("it is sent");
    if way == DOWN {
        send.finish().expect("it ends");
        return drain(&mut recv).await;
    }
    write(&mut send, len_bytes).await;
    let answer = recv.read_to_end(8).await.expect("an answer");
    u64::from_le_bytes(answer.try_into().expect("8 bytes"))
}

/// The far end.
async fn end(mut send: SendStream, mut recv: RecvStream) {
    let mut header = [0; 9];
    if recv.read_exact(&mut header).await.is_err() {
        return;
    }
    let len_bytes = u64::from_le_bytes(*header.last_chunk().expect("9 bytes"));
    if header[0] == DOWN {
        write(&mut send, len_bytes).await;
    } else {
        let received = drain(&mut recv).await;
        send.write_all(&received.to_le_bytes()).await.expect("it is sent");
        send.finish().expect("it ends");
    }
}

/// The middle.
async fn pass(far: Connection, send: SendStream, recv: RecvStream) {
    let (far_send, far_recv) = far.open_bi().await.expect("a stream");
    tokio::join!(copy(recv, far_send), copy(far_recv, send));
}

async fn copy(mut from: RecvStream, mut to: SendStream) {
    while let Ok(Some(chunk)) = from.read_chunk(PIECE_LEN_BYTES, true).await {
        if to.write_chunk(chunk.bytes).await.is_err() {
            return;
        }
    }
    // Fails only where the other side is gone.
    let _ = to.finish();
}

async fn write(send: &mut SendStream, len_bytes: u64) {
    let piece = Bytes::from(vec![7; PIECE_LEN_BYTES.min(len_bytes as usize)]);
    let mut left_bytes = len_bytes;
    while left_bytes > 0 {
        let len = left_bytes.min(PIECE_LEN_BYTES as u64);
        send.write_chunk(piece.slice(..len as usize)).await.expect("it is sent");
        left_bytes -= len;
    }
    send.finish().expect("it ends");
}

async fn drain(recv: &mut RecvStream) -> u64 {
    let mut received = 0;
    while let Some(chunk) = recv.read_chunk(PIECE_LEN_BYTES, true).await.expect("it comes") {
        received += chunk.bytes.len() as u64;
    }
    received
}
