//! Reading an open file: frames from the brick to the client as they come.

use portcullis_core::Status;
use portcullis_core::limits::READ_LEN_BYTES_MAX;
use portcullis_transport::ReplySink;
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{ReplyFrame, Request};

use crate::brick_call::Fault;
use crate::outflow::{Interrupt, send};
use crate::session::Session;
use crate::volume::Volume;

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
    let (mut at, mut left) = (offset_bytes, len_bytes);
    let mut deadline = volume.brick.deadline();
    let mut lost = 0;
    loop {
        let (brick, file) = open.at_brick(volume, lost, deadline).await?;
        let request = Request::Read { file, offset_bytes: at, len_bytes: left };
        let mut stream = match volume.brick.open(&brick, &request, deadline).await {
            Ok(stream) => Some(stream),
            Err(Fault::Failed(failure)) => return Err(failure.into()),
            Err(Fault::Lost) => {
                lost = brick.epoch;
                continue;
            }
        };
        while let Some(frames) = &mut stream {
            match frames.next().await {
                Ok(ReplyFrame::Data(data)) if data.len() <= left as usize => {
                    at += data.len() as u64;
                    left -= data.len() as u32;
                    send(reply.data(data), || stream = None).await?;
                    deadline = volume.brick.deadline();
                    if stream.is_none() && left == 0 {
                        return Ok(());
                    }
                }
                Ok(ReplyFrame::End { .. }) => return Ok(()),
                Ok(ReplyFrame::Failure(failure)) | Err(Fault::Failed(failure)) => {
                    return Err(failure.into());
                }
                Ok(ReplyFrame::Reply(_) | ReplyFrame::Chunk(_) | ReplyFrame::Data(_)) => {
                    return Err(volume.brick.nonsense(Verb::Read).into());
                }
                Err(Fault::Lost) => {
                    lost = brick.epoch;
                    stream = None;
                }
            }
        }
    }
}
