//! Who compiles components, and what becomes of the code.
//!
//! A server compiles in a process of its own, which is gone afterwards: the compiler is the largest part
//! that a component gets to work on, it keeps memory for good (wasmtime 48), and what it takes of time
//! and memory can only be bounded for a process. The child is the same binary, told to do only this
//! ([`compile_in_this_process`]). Programs and tests that are no such binary compile in place.
//!
//! What must hold: code is run only if this binary compiled it, see [`Code`].

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use portcullis_core::limits::{
    POLICY_CODE_LEN_BYTES_MAX, POLICY_COMPILE_CPU_S_MAX, POLICY_COMPILE_MEMORY_BYTES_MAX,
    POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_MESSAGE_LEN_MAX,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use wasmtime::component::Component;

use crate::codes::CodeCache;
use crate::component::{Compiled, Names, World, inspect, sha256};
use crate::engine::{self, Engine};
use crate::error::Refusal;
use crate::guest::readable;

/// How much less than a server the child is worth to the scheduler, as nice(1) counts.
const NICER: i32 = 10;

/// Where components are compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Compiler {
    /// Here.
    #[default]
    InProcess,
    /// In a child: a program that ends in [`compile_in_this_process`], and must be this very binary.
    Child {
        /// The program.
        program: PathBuf,
        /// What to tell it.
        args: Vec<String>,
    },
}

/// Machine code that this binary made of a component.
///
/// There are two ways to one: from a child that is this very binary, over a pipe whose other end only
/// that child has ([`Compiler::run`]); and from a file that was written from such code
/// ([`CodeCache::get`]), into a directory where nobody but this user may write, with its SHA-256
/// checked.
pub(crate) struct Code(Vec<u8>);

impl Code {
    /// Code read from where only such code is written. Whoever calls this vouches for that.
    pub(crate) fn vouched(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The component to run.
    fn component(&self, engine: &Engine) -> Result<Component, Refusal> {
        // SAFETY: the bytes must come from `Engine::precompile_component` unchanged, else they could be
        // any machine code. `Code` is made in two places only, both of which see to that: see there.
        // That engine and version are the same is checked by wasmtime itself.
        let component = unsafe { Component::deserialize(&engine.wasmtime, &self.0) };
        component.map_err(|error| Refusal::Compile(format!("{error:#}")))
    }
}

impl Compiler {
    /// Checks a component for `world` and makes code of it, or takes it from `codes`.
    pub(crate) fn compile(
        &self,
        world: &World,
        bytes: &[u8],
        codes: Option<&CodeCache>,
    ) -> Result<Compiled, Refusal> {
        inspect(world, bytes)?;
        let engine = Engine::shared()?;
        let digest = sha256(bytes);
        // What cannot be used is as good as nothing.
        let known = codes.and_then(|codes| codes.get(engine, &digest)?.component(engine).ok());
        if let Some(component) = known {
            return Ok(Compiled { component, digest });
        }
        let component = match self {
            Compiler::InProcess if codes.is_none() => {
                Component::from_binary(&engine.wasmtime, bytes)
                    .map_err(|error| Refusal::Compile(format!("{error:#}")))?
            }
            _ => {
                let code = self.run(engine, bytes)?;
                if let Some(codes) = codes {
                    codes.put(engine, &digest, &code);
                }
                code.component(engine)?
            }
        };
        Ok(Compiled { component, digest })
    }

    fn run(&self, engine: &Engine, bytes: &[u8]) -> Result<Code, Refusal> {
        let Compiler::Child { program, args } = self else {
            let code = engine.wasmtime.precompile_component(bytes);
            return code.map(Code).map_err(|error| Refusal::Compile(format!("{error:#}")));
        };
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Refusal::Compile(format!("the compiler cannot be started: {error}"))
            })?;
        let Output { status, stdout, stderr } = talk(child, bytes)
            .map_err(|error| Refusal::Compile(format!("the compiler is lost: {error}")))?;
        match status.code() {
            Some(0) if !stdout.is_empty() => Ok(Code(stdout)),
            Some(_) => Err(Refusal::Compile(readable(&String::from_utf8_lossy(&stderr)))),
            None => {
                let signal = status.signal().unwrap_or(0);
                Err(Refusal::Compile(format!(
                    "the compiler was ended by signal {signal}: it may take \
                     {POLICY_COMPILE_CPU_S_MAX} s of CPU time and {} MiB",
                    POLICY_COMPILE_MEMORY_BYTES_MAX >> 20
                )))
            }
        }
    }
}

struct Output {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Gives a child its input and takes what it gives, all at once.
fn talk(mut child: Child, input: &[u8]) -> io::Result<Output> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = thread::scope(|scope| {
        scope.spawn(move || {
            // A child that ends before it read everything says why elsewhere.
            let _ = stdin.map(|mut stdin| stdin.write_all(input));
        });
        let stderr = scope.spawn(move || read_some(stderr, POLICY_MESSAGE_LEN_MAX));
        let stdout = read_some(stdout, POLICY_CODE_LEN_BYTES_MAX);
        (stdout, stderr.join().unwrap_or_default())
    });
    // Both pipes are closed: one that gave too much is ended by that.
    let status = child.wait()?;
    Ok(Output { status, stdout, stderr })
}

/// At most so many bytes. What was read before an error is of use in a message, and no code: the child
/// has not ended well then.
fn read_some(pipe: Option<impl Read>, len_bytes_max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(len_bytes_max as u64).read_to_end(&mut bytes);
    }
    bytes
}

/// The child's side: reads a component from standard input and writes its code to standard output,
/// within limits that it puts on itself before it reads anything.
///
/// # Errors
/// What is wrong with the component, in a line for standard error.
pub fn compile_in_this_process() -> Result<(), String> {
    limit_this_process().map_err(|error| format!("no limits for the compiler: {error}"))?;
    let mut bytes = Vec::new();
    io::stdin()
        .take(POLICY_COMPONENT_LEN_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("no component on standard input: {error}"))?;
    Names::read(&bytes).map_err(|refusal| refusal.to_string())?;
    let engine = wasmtime::Engine::new(&engine::config()).map_err(|error| format!("{error:#}"))?;
    let code = engine.precompile_component(&bytes).map_err(|error| format!("{error:#}"))?;
    let mut stdout = io::stdout();
    let written = stdout.write_all(&code).and_then(|()| stdout.flush());
    written.map_err(|error| format!("nobody takes the code: {error}"))
}

fn limit_this_process() -> io::Result<()> {
    let set = |resource, most: u64| {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
    };
    set(Resource::As, POLICY_COMPILE_MEMORY_BYTES_MAX)?;
    set(Resource::Cpu, POLICY_COMPILE_CPU_S_MAX)?;
    set(Resource::Core, 0)?;
    // It writes to pipes alone.
    set(Resource::Fsize, 0)?;
    rustix::process::nice(NICER)?;
    Ok(())
}
