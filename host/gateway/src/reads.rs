//! Reading an open file: frames from the brick to the client as they come.

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_core::limits::{READ_FRAME_LEN_BYTES, READ_LEN_BYTES_MAX};
use portcullis_transport::ReplySink;
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{ReplyFrame, Request};

use crate::brick_call::Fault;
use crate::outflow::{Interrupt, send};
use crate::session::Session;
use crate::volume::Volume;

/// What a client asks for, as far as it has not got it yet.
struct Wanted {
    at_bytes: u64,
    left_bytes: u32,
    /// The client does not keep up: the brick is asked for one frame at a time, so that little is
    /// read only to be let go.
    slow: bool,
}

/// Sends up to `len_bytes` bytes of an open file from `offset_bytes` on. A connection to the brick
/// that is lost on the way is replaced by the next one, where there is one in time.
pub(crate) async fn read(
    volume: &Volume,
    session: &Session,
    file: u64,
    offset_bytes: u64,
    len_bytes: u32,
    reply: &mut ReplySink,
) -> Result<(), Interrupt> {
    if len_bytes > READ_LEN_BYTES_MAX {
        let detail = format!("a read of {len_bytes} bytes, over {READ_LEN_BYTES_MAX}");
        return Err(Failure::new(Status::InvalidArgument, detail).into());
    }
    let open = session.file(file)?;
    // Its pages may be cached.
    session.watch_attr(&open.handle);
    let mut wanted = Wanted { at_bytes: offset_bytes, left_bytes: len_bytes, slow: false };
    let link = volume.bricks.of(&open.handle);
    let mut deadline = link.deadline();
    let mut lost = 0;
    loop {
        let (brick, file) = open.at_brick(volume, lost, deadline).await?;
        let mut asked_bytes = match wanted.slow {
            true => wanted.left_bytes.min(READ_FRAME_LEN_BYTES as u32),
            false => wanted.left_bytes,
        };
        let offset_bytes = wanted.at_bytes;
        let request = Request::Read { file, offset_bytes, len_bytes: asked_bytes };
        let mut stream = match link.open(&brick, &request, deadline).await {
            Ok(stream) => Some(stream),
            Err(Fault::Failed(failure)) => return Err(failure.into()),
            Err(Fault::Lost) => {
                lost = brick.epoch;
                continue;
            }
        };
        while let Some(frames) = &mut stream {
            match frames.next().await {
                Ok(ReplyFrame::Data(data)) if data.len() <= asked_bytes as usize => {
                    let pieces = frames.with_held_data(data, asked_bytes as usize);
                    let len_bytes = pieces.iter().map(Bytes::len).sum::<usize>() as u32;
                    asked_bytes -= len_bytes;
                    wanted.at_bytes += u64::from(len_bytes);
                    wanted.left_bytes -= len_bytes;
                    send(reply.data(pieces), || stream = None).await?;
                    wanted.slow |= stream.is_none();
                    deadline = link.deadline();
                    if wanted.left_bytes == 0 && stream.is_none() {
                        return Ok(());
                    }
                }
                // Fewer bytes than asked for are the end of the file.
                Ok(ReplyFrame::End { .. }) if asked_bytes > 0 || wanted.left_bytes == 0 => {
                    return Ok(());
                }
                Ok(ReplyFrame::End { .. }) => stream = None,
                Ok(ReplyFrame::Failure(failure)) | Err(Fault::Failed(failure)) => {
                    return Err(failure.into());
                }
                Ok(
                    ReplyFrame::Reply(_)
                    | ReplyFrame::Chunk(_)
                    | ReplyFrame::Contents(_)
                    | ReplyFrame::Data(_),
                ) => {
                    return Err(link.nonsense(Verb::Read).into());
                }
                Err(Fault::Lost) => {
                    lost = brick.epoch;
                    stream = None;
                }
            }
        }
    }
}
