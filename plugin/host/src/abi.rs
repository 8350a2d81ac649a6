//! Across the C ABI: loads the plugin and calls it, and answers its callbacks
//! from a safe [`Host`]. The one place of this package with unsafe code.
//!
//! Nothing is freed across the boundary: what the plugin hands over is copied
//! in the sink, what it is handed is borrowed until the call returns. No panic
//! leaves a callback.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use git_claim_api::abi::{
    GCLAIM_ABI_MINOR, GCLAIM_ALLOW, GCLAIM_EBUSY, GCLAIM_ECANCEL, GCLAIM_ECONFIG, GCLAIM_EDENIED,
    GCLAIM_EFORKED, GCLAIM_EINVAL, GCLAIM_EIO, GCLAIM_ENOTFOUND, GCLAIM_ENTRY, GCLAIM_EPANIC,
    GCLAIM_OK, GCLAIM_REQUEST_HOST, GCLAIM_STDERR, GCLAIM_STDOUT, gclaim_config, gclaim_entry_fn,
    gclaim_host, gclaim_instance, gclaim_plugin, gclaim_query, gclaim_request, gclaim_sink,
    gclaim_str,
};
use git_claim_api::access::Access;
use git_claim_api::event::Event;
use git_claim_api::gclaim_has;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::host::{Host, Input, NoInput, Output, Stream, Unreadable};
use crate::log;
use crate::plugin_file::PluginFile;

/// Why a call into the plugin failed: a negative status of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("the loader broke the plugin's contract")]
    Invalid,
    #[error("the plugin rejected its settings")]
    Config,
    #[error("the ledger is out of order")]
    Io,
    #[error("the ledger is busy")]
    Busy,
    #[error("repository not found")]
    NotFound,
    #[error("permission denied")]
    Denied,
    #[error("the client went away")]
    Cancelled,
    #[error("the plugin was opened in another process")]
    Forked,
    #[error("the plugin failed; this is a bug in it")]
    Panicked,
    #[error("the plugin answered with the unknown status {0}")]
    Unknown(i32),
}

impl CallError {
    fn check(status: i32) -> Result<(), CallError> {
        Err(match status {
            GCLAIM_OK => return Ok(()),
            GCLAIM_EINVAL => CallError::Invalid,
            GCLAIM_ECONFIG => CallError::Config,
            GCLAIM_EIO => CallError::Io,
            GCLAIM_EBUSY => CallError::Busy,
            GCLAIM_ENOTFOUND => CallError::NotFound,
            GCLAIM_EDENIED => CallError::Denied,
            GCLAIM_ECANCEL => CallError::Cancelled,
            GCLAIM_EFORKED => CallError::Forked,
            GCLAIM_EPANIC => CallError::Panicked,
            status => CallError::Unknown(status),
        })
    }
}

/// Why the plugin's file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("plugin {path}: {reason}")]
    NotLoaded {
        path: String,
        reason: libloading::Error,
    },
    #[error("plugin {0}: it exports an incomplete table of functions")]
    BadTable(String),
}

/// A call to `open` that failed, with the plugin's own line about it.
#[derive(Debug, thiserror::Error)]
#[error("{}", if .line.is_empty() { .status.to_string() } else { .line.clone() })]
pub struct OpenError {
    pub status: CallError,
    pub line: String,
}

type Describe = unsafe extern "C" fn(*const gclaim_sink) -> i32;
type Open = unsafe extern "C" fn(
    *const gclaim_host,
    *const gclaim_config,
    *mut *mut gclaim_instance,
    *const gclaim_sink,
) -> i32;
type Exec = unsafe extern "C" fn(*mut gclaim_instance, *const gclaim_request, *mut u32) -> i32;
type Query =
    unsafe extern "C" fn(*mut gclaim_instance, *const gclaim_query, *const gclaim_sink) -> i32;
type Close = unsafe extern "C" fn(*mut gclaim_instance);

/// The loaded plugin; it stays loaded for good.
#[derive(Debug, Clone, Copy)]
pub struct Plugin {
    describe: Describe,
    open: Open,
    exec: Exec,
    query: Query,
    close: Close,
}

impl Plugin {
    /// Loads the very file that was checked.
    ///
    /// # Errors
    /// The dynamic linker refuses it, or its table lacks a function.
    pub fn load(file: PluginFile) -> Result<Plugin, LoadError> {
        let path = file.file().path().display().to_string();
        let not_loaded = |reason| LoadError::NotLoaded {
            path: path.clone(),
            reason,
        };
        // SAFETY: loading runs the file's constructors. It was checked that only
        // root or this user can have written it and that it has our entry, and
        // the descriptor names that file, not whatever has its path by now.
        let library =
            unsafe { Library::open(Some(file.file().descriptor()), RTLD_NOW | RTLD_LOCAL) }
                .map_err(not_loaded)?;
        // SAFETY: the header fixes this symbol's type for this major version.
        let entry = unsafe { library.get::<gclaim_entry_fn>(GCLAIM_ENTRY) }.map_err(not_loaded)?;
        // SAFETY: the entry takes nothing and may be called at any time.
        let table = unsafe { entry() };
        // Never unloaded: its threads, locks and static data live on. Nor is the
        // descriptor closed: the linker knows the library by that name and would
        // give it out for any other file that got the same number.
        let _ = library.into_raw();
        std::mem::forget(file);
        // SAFETY: the entry's contract: a static, immutable table.
        unsafe { Plugin::from_table(table) }.ok_or(LoadError::BadTable(path))
    }

    /// The functions of `table`, if it holds all of them.
    ///
    /// # Safety
    /// `table` is null or points to a table that lives for good and is as long
    /// as its `size` says.
    unsafe fn from_table(table: *const gclaim_plugin) -> Option<Plugin> {
        if table.is_null() || !table.is_aligned() {
            return None;
        }
        // SAFETY: not null, aligned; `size` is the first field of every version.
        let size = unsafe { ptr::read(ptr::addr_of!((*table).size)) };
        // Every function has been there since the first version of this major.
        if !gclaim_has!(gclaim_plugin, close, size) {
            return None;
        }
        // SAFETY: the table reaches past the last field that we know.
        let table = unsafe { &*table };
        Some(Plugin {
            describe: table.describe?,
            open: table.open?,
            exec: table.exec?,
            query: table.query?,
            close: table.close?,
        })
    }

    /// The plugin's static facts, a JSON object. Opens no file.
    ///
    /// # Errors
    /// The plugin's status.
    pub fn describe(&self) -> Result<String, CallError> {
        let mut text = Vec::new();
        let sink = collector(&mut text);
        // SAFETY: `sink` and the vector behind it outlive the call.
        CallError::check(unsafe { (self.describe)(&sink) })?;
        String::from_utf8(text).map_err(|_| CallError::Invalid)
    }

    /// Opens the ledger with `settings`, a JSON object. With `has_tracker` the
    /// plugin asks the host of each request for issues.
    ///
    /// # Errors
    /// The plugin's status and its line about it.
    pub fn open(&self, settings: &str, has_tracker: bool) -> Result<Instance, OpenError> {
        let host = if has_tracker {
            &HOST_WITH_TRACKER
        } else {
            &HOST
        };
        let config = gclaim_config {
            size: size_of_u32::<gclaim_config>(),
            flags: 0,
            settings: borrow(settings.as_bytes()),
        };
        let mut line = Vec::new();
        let sink = collector(&mut line);
        let mut instance = ptr::null_mut();
        // SAFETY: all four outlive the call; the plugin copies the host's table,
        // whose functions are static.
        let status = unsafe { (self.open)(&host.0, &config, &mut instance, &sink) };
        let opened = CallError::check(status).and_then(|()| {
            if instance.is_null() {
                Err(CallError::Invalid)
            } else {
                Ok(())
            }
        });
        match opened {
            Ok(()) => Ok(Instance {
                plugin: *self,
                instance,
            }),
            Err(status) => Err(OpenError {
                status,
                line: String::from_utf8_lossy(&line).trim_end().to_owned(),
            }),
        }
    }
}

/// Whose a request is, and its words.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The raw exec string, the verb included.
    pub command: &'a [u8],
    /// The principal's name, never empty.
    pub user: &'a str,
    /// The principal's profile.
    pub key: &'a str,
    /// The client's address, or empty.
    pub peer: &'a str,
    /// Milliseconds.
    pub deadline_ms: u32,
    /// The request is the host's own; a client cannot send it.
    pub of_host: bool,
}

/// A read-only question, and who wants to know.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// One of [`git_claim_api::query::QUERIES`].
    pub name: &'a str,
    /// A JSON object.
    pub params: &'a str,
    /// The viewer's name; empty for nobody.
    pub user: &'a str,
    /// Milliseconds.
    pub deadline_ms: u32,
}

/// The plugin with its ledger open. Threads may share it.
#[derive(Debug)]
pub struct Instance {
    plugin: Plugin,
    instance: *mut gclaim_instance,
}

// SAFETY: an instance belongs to its process, not to a thread: each call runs on
// the thread that makes it, and the plugin orders them among each other.
unsafe impl Send for Instance {}
// SAFETY: the same.
unsafe impl Sync for Instance {}

impl Instance {
    /// Runs one request and gives its exit code, 0-125.
    ///
    /// # Errors
    /// The plugin's status; it has printed nothing then.
    pub fn exec(
        &self,
        request: &Request<'_>,
        host: &dyn Host,
        output: &dyn Output,
        input: &dyn Input,
    ) -> Result<u8, CallError> {
        let call = Call {
            host,
            output,
            input,
        };
        let request = gclaim_request {
            size: size_of_u32::<gclaim_request>(),
            flags: if request.of_host {
                GCLAIM_REQUEST_HOST
            } else {
                0
            },
            call: ptr::from_ref(&call).cast_mut().cast(),
            command: borrow(request.command),
            user: borrow(request.user.as_bytes()),
            key: borrow(request.key.as_bytes()),
            peer: borrow(request.peer.as_bytes()),
            deadline_ms: request.deadline_ms,
            reserved: 0,
        };
        let mut exit_code = 0;
        // SAFETY: the instance is open; the request and all it points to outlive
        // the call, and the plugin uses `call` during it alone.
        let status = unsafe { (self.plugin.exec)(self.instance, &request, &mut exit_code) };
        CallError::check(status)?;
        match u8::try_from(exit_code) {
            Ok(code) if code <= 125 => Ok(code),
            _ => Err(CallError::Invalid),
        }
    }

    /// Asks a read-only question and gives the answer, a JSON object.
    ///
    /// # Errors
    /// The plugin's status; [`CallError::NotFound`] alike for what is not there
    /// and for what the viewer may not know of.
    pub fn query(&self, question: &Question<'_>, host: &dyn Host) -> Result<String, CallError> {
        let call = Call {
            host,
            output: &Nowhere,
            input: &NoInput,
        };
        let query = gclaim_query {
            size: size_of_u32::<gclaim_query>(),
            flags: 0,
            call: ptr::from_ref(&call).cast_mut().cast(),
            name: borrow(question.name.as_bytes()),
            params: borrow(question.params.as_bytes()),
            user: borrow(question.user.as_bytes()),
            deadline_ms: question.deadline_ms,
            reserved: 0,
        };
        let mut answer = Vec::new();
        let sink = collector(&mut answer);
        // SAFETY: the instance is open; the query, the sink and all they point
        // to outlive the call, and the plugin uses `call` during it alone.
        let status = unsafe { (self.plugin.query)(self.instance, &query, &sink) };
        CallError::check(status)?;
        String::from_utf8(answer).map_err(|_| CallError::Invalid)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: opened by this plugin, and every exec and query has returned, as
        // each borrows the instance.
        unsafe { (self.plugin.close)(self.instance) }
    }
}

/// What `gclaim_request.call` points to.
struct Call<'a> {
    host: &'a dyn Host,
    output: &'a dyn Output,
    input: &'a dyn Input,
}

/// The outputs of a question: its answer goes to a sink, and to nothing else.
struct Nowhere;

impl Output for Nowhere {
    fn write(&self, _: Stream, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The callbacks. `now` is the one that these loaders leave to the plugin.
const HOST_CALLBACKS: gclaim_host = gclaim_host {
    size: size_of_u32::<gclaim_host>(),
    abi_minor: GCLAIM_ABI_MINOR,
    ctx: ptr::null_mut(),
    log: Some(on_log),
    now: None,
    resolve_repo: Some(on_resolve_repo),
    authorize: Some(on_authorize),
    write: Some(on_write),
    read: Some(on_read),
    cancelled: Some(on_cancelled),
    repo_path: Some(on_repo_path),
    resolve_issue: None,
    event: Some(on_event),
};

/// What the plugin is handed where issues live in the repository.
static HOST: HostTable = HostTable(HOST_CALLBACKS);

/// The same for a forge with issues of its own.
static HOST_WITH_TRACKER: HostTable = HostTable(gclaim_host {
    resolve_issue: Some(on_resolve_issue),
    ..HOST_CALLBACKS
});

struct HostTable(gclaim_host);

// SAFETY: the table is never written, its `ctx` is null, and its functions work
// on what they are handed alone.
unsafe impl Sync for HostTable {}

/// `size_of` as the header's `size` fields have it.
#[allow(clippy::cast_possible_truncation)] // a few dozen bytes
const fn size_of_u32<T>() -> u32 {
    size_of::<T>() as u32
}

fn borrow(bytes: &[u8]) -> gclaim_str {
    gclaim_str {
        ptr: bytes.as_ptr().cast(),
        len: bytes.len(),
    }
}

/// The bytes at `data`, or `None` where the plugin broke the contract.
///
/// # Safety
/// `data` is null or points to `len` bytes that stay as they are for `'a`.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Option<&'a [u8]> {
    if len == 0 {
        return Some(&[]);
    }
    if data.is_null() || isize::try_from(len).is_err() {
        return None;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Some(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// The same as text.
///
/// # Safety
/// As [`bytes`].
unsafe fn text<'a>(data: *const c_char, len: usize) -> Option<&'a str> {
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { bytes(data.cast(), len) }?;
    std::str::from_utf8(bytes).ok()
}

/// The most that a sink of ours takes, in bytes: the answer to a question is
/// below, and a plugin out of order must not eat the memory.
const MOST: usize = 16 * 1024 * 1024;

/// A sink that appends to `into`, which must outlive it.
fn collector(into: &mut Vec<u8>) -> gclaim_sink {
    gclaim_sink {
        ctx: ptr::from_mut(into).cast(),
        write: Some(on_collect),
    }
}

unsafe extern "C" fn on_collect(ctx: *mut c_void, data: *const c_void, len: usize) -> i32 {
    guarded(|| {
        // SAFETY: `collector` made ctx from a vector that outlives the call, and
        // nothing else touches it meanwhile.
        let into = unsafe { &mut *ctx.cast::<Vec<u8>>() };
        // SAFETY: the plugin lends the bytes until this returns.
        match unsafe { bytes(data, len) } {
            Some(data) if into.len() + data.len() <= MOST => {
                into.extend_from_slice(data);
                GCLAIM_OK
            }
            _ => GCLAIM_EINVAL,
        }
    })
}

/// Hands `data` to a sink of the plugin's.
///
/// # Safety
/// `sink` is null or a sink of the header that can be written to now.
unsafe fn pour(sink: *const gclaim_sink, data: &[u8]) -> i32 {
    // SAFETY: the caller vouches for it.
    let Some(sink) = (unsafe { sink.as_ref() }) else {
        return GCLAIM_EINVAL;
    };
    match sink.write {
        // SAFETY: the plugin's own function with its own ctx; it copies.
        Some(write) => unsafe { write(sink.ctx, data.as_ptr().cast(), data.len()) },
        None => GCLAIM_EINVAL,
    }
}

/// The body of a callback: a panic must not unwind into C.
fn guarded(body: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(GCLAIM_EIO)
}

/// The same with the request's [`Call`].
///
/// # Safety
/// `call` is null or what [`Instance::exec`] or [`Instance::query`] handed over,
/// and that one has not returned.
unsafe fn with_call(call: *mut c_void, body: impl FnOnce(&Call<'_>) -> i32) -> i32 {
    // SAFETY: the caller vouches for it.
    guarded(|| match unsafe { call.cast::<Call<'_>>().as_ref() } {
        Some(call) => body(call),
        None => GCLAIM_EINVAL,
    })
}

unsafe extern "C" fn on_log(_ctx: *mut c_void, level: u32, msg: *const c_char, len: usize) {
    guarded(|| {
        // SAFETY: the plugin lends the message until this returns.
        if let Some(message) = unsafe { bytes(msg.cast(), len) } {
            log::log(
                log::Level::from_abi(level),
                &String::from_utf8_lossy(message),
            );
        }
        GCLAIM_OK
    });
}

unsafe extern "C" fn on_resolve_repo(
    call: *mut c_void,
    name: *const c_char,
    len: usize,
    id: *const gclaim_sink,
) -> i32 {
    let body = |call: &Call<'_>| {
        // SAFETY: the plugin lends the name until this returns.
        let name = unsafe { text(name, len) };
        match name.and_then(|name| call.host.resolve_repo(name)) {
            // SAFETY: the sink is the plugin's, for this call.
            Some(found) => unsafe { pour(id, found.as_bytes()) },
            None => GCLAIM_ENOTFOUND,
        }
    };
    // SAFETY: the plugin hands back the `call` of the call under way.
    unsafe { with_call(call, body) }
}

unsafe extern "C" fn on_authorize(
    call: *mut c_void,
    repo_id: *const c_char,
    len: usize,
    access: u32,
) -> i32 {
    let body = |call: &Call<'_>| {
        // SAFETY: the plugin lends the id until this returns.
        let id = unsafe { text(repo_id, len) };
        match (id, Access::from_abi(access)) {
            (Some(id), Some(access)) if call.host.authorize(id, access) => GCLAIM_ALLOW,
            _ => GCLAIM_EDENIED,
        }
    };
    // SAFETY: the plugin hands back the `call` of the call under way.
    unsafe { with_call(call, body) }
}

unsafe extern "C" fn on_write(
    call: *mut c_void,
    stream: u32,
    data: *const c_void,
    len: usize,
) -> i32 {
    let body = |call: &Call<'_>| {
        let stream = match stream {
            GCLAIM_STDOUT => Stream::Stdout,
            GCLAIM_STDERR => Stream::Stderr,
            _ => return GCLAIM_EINVAL,
        };
        // SAFETY: the plugin lends the bytes until this returns.
        let Some(data) = (unsafe { bytes(data, len) }) else {
            return GCLAIM_EINVAL;
        };
        match call.output.write(stream, data) {
            Ok(()) => GCLAIM_OK,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => GCLAIM_ECANCEL,
            Err(_) => GCLAIM_EIO,
        }
    };
    // SAFETY: the plugin hands back the `call` of the call under way.
    unsafe { with_call(call, body) }
}

unsafe extern "C" fn on_read(
    call: *mut c_void,
    buf: *mut c_void,
    cap: usize,
    got: *mut usize,
) -> i32 {
    let body = |call: &Call<'_>| {
        // SAFETY: null or the plugin's integer, for this call.
        let Some(got) = (unsafe { got.as_mut() }) else {
            return GCLAIM_EINVAL;
        };
        *got = 0;
        if buf.is_null() || cap == 0 || isize::try_from(cap).is_err() {
            return GCLAIM_EINVAL;
        }
        // SAFETY: the plugin lends `cap` bytes, which it has initialised or which
        // are only written to, until this returns.
        let buffer = unsafe {
            ptr::write_bytes(buf.cast::<u8>(), 0, cap);
            std::slice::from_raw_parts_mut(buf.cast::<u8>(), cap)
        };
        match call.input.read(buffer) {
            Ok(read) => {
                *got = read;
                GCLAIM_OK
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => GCLAIM_EBUSY,
            Err(_) => GCLAIM_ECANCEL,
        }
    };
    // SAFETY: the plugin hands back the request's `call` during exec.
    unsafe { with_call(call, body) }
}

unsafe extern "C" fn on_cancelled(call: *mut c_void) -> i32 {
    let body = |call: &Call<'_>| i32::from(call.output.is_given_up());
    // SAFETY: the plugin hands back the `call` of the call under way.
    unsafe { with_call(call, body) }
}

unsafe extern "C" fn on_event(call: *mut c_void, json: *const c_char, len: usize) -> i32 {
    let body = |call: &Call<'_>| {
        // SAFETY: the plugin lends the text until this returns.
        let json = unsafe { text(json, len) };
        let event = json.and_then(|json| serde_json::from_str::<Event>(json).ok());
        match (event, json) {
            (Some(event), Some(json)) => {
                call.host.event(&event.repo, json);
                GCLAIM_OK
            }
            _ => GCLAIM_EINVAL,
        }
    };
    // SAFETY: the plugin hands back the request's `call` during exec.
    unsafe { with_call(call, body) }
}

unsafe extern "C" fn on_repo_path(
    call: *mut c_void,
    repo_id: *const c_char,
    len: usize,
    path: *const gclaim_sink,
) -> i32 {
    let body = |call: &Call<'_>| {
        // SAFETY: the plugin lends the id until this returns.
        let id = unsafe { text(repo_id, len) };
        match id.and_then(|id| call.host.repo_path(id)) {
            // SAFETY: the sink is the plugin's, for this call.
            Some(found) => unsafe { pour(path, found.as_os_str().as_bytes()) },
            None => GCLAIM_ENOTFOUND,
        }
    };
    // SAFETY: the plugin hands back the `call` of the call under way.
    unsafe { with_call(call, body) }
}

unsafe extern "C" fn on_resolve_issue(
    call: *mut c_void,
    repo_id: *const c_char,
    repo_len: usize,
    issue: *const c_char,
    issue_len: usize,
    json: *const gclaim_sink,
) -> i32 {
    let body = |call: &Call<'_>| {
        // SAFETY: the plugin lends both until this returns.
        let (id, issue) = unsafe { (text(repo_id, repo_len), text(issue, issue_len)) };
        let (Some(id), Some(issue)) = (id, issue) else {
            return GCLAIM_ENOTFOUND;
        };
        match call.host.resolve_issue(id, issue) {
            // SAFETY: the sink is the plugin's, for this call.
            Ok(Some(found)) => unsafe { pour(json, found.as_bytes()) },
            Ok(None) => GCLAIM_ENOTFOUND,
            Err(Unreadable) => GCLAIM_EIO,
        }
    };
    // SAFETY: the plugin hands back the `call` of the call under way.
    unsafe { with_call(call, body) }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use super::*;

    /// A host that knows one repository, and panics on another.
    struct OneRepo;

    impl Host for OneRepo {
        fn resolve_repo(&self, name: &str) -> Option<String> {
            assert_ne!(name, "panic");
            (name == "r").then(|| "r.git".to_owned())
        }

        fn authorize(&self, repo_id: &str, access: Access) -> bool {
            repo_id == "r.git" && access <= Access::Write
        }

        fn repo_path(&self, repo_id: &str) -> Option<PathBuf> {
            (repo_id == "r.git").then(|| PathBuf::from("/srv/r.git"))
        }

        fn resolve_issue(&self, _repo_id: &str, issue: &str) -> Result<Option<String>, Unreadable> {
            match issue {
                "1" => Ok(Some("{}".to_owned())),
                "2" => Ok(None),
                _ => Err(Unreadable),
            }
        }
    }

    /// An input of one byte at a time: 7, and again 7.
    struct Seven;

    impl Input for Seven {
        fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
            match buffer.len() {
                2 => Err(io::ErrorKind::WouldBlock.into()),
                3 => Err(io::ErrorKind::BrokenPipe.into()),
                _ => {
                    buffer[0] = 7;
                    Ok(1)
                }
            }
        }
    }

    #[derive(Default)]
    struct Kept(RefCell<Vec<(Stream, Vec<u8>)>>);

    impl Output for Kept {
        fn write(&self, stream: Stream, data: &[u8]) -> io::Result<()> {
            if data == b"gone" {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.0.borrow_mut().push((stream, data.to_vec()));
            Ok(())
        }
    }

    /// Calls `body` as a plugin would, with the request's `call`.
    fn as_plugin<T>(output: &Kept, body: impl FnOnce(*mut c_void) -> T) -> T {
        let call = Call {
            host: &OneRepo,
            output,
            input: &Seven,
        };
        body(ptr::from_ref(&call).cast_mut().cast())
    }

    fn resolve(name: &[u8]) -> (i32, String) {
        let mut id = Vec::new();
        let sink = collector(&mut id);
        let status = as_plugin(&Kept::default(), |call| {
            // SAFETY: all pointers outlive the call.
            unsafe { on_resolve_repo(call, name.as_ptr().cast(), name.len(), &sink) }
        });
        (status, String::from_utf8(id).unwrap())
    }

    #[test]
    fn input_is_read_or_not_there_yet_or_gone() {
        for (capacity, status, expected) in [
            (0, GCLAIM_EINVAL, 0),
            (1, GCLAIM_OK, 1),
            (2, GCLAIM_EBUSY, 0),
            (3, GCLAIM_ECANCEL, 0),
        ] {
            let mut buffer = [0_u8; 4];
            let mut got = 9;
            let answered = as_plugin(&Kept::default(), |call| {
                // SAFETY: all pointers outlive the call.
                unsafe { on_read(call, buffer.as_mut_ptr().cast(), capacity, &mut got) }
            });
            assert_eq!((answered, got), (status, expected), "{capacity}");
        }
    }

    #[test]
    fn a_repository_is_resolved_or_not_found() {
        assert_eq!(resolve(b"r"), (GCLAIM_OK, "r.git".to_owned()));
        assert_eq!(resolve(b"other"), (GCLAIM_ENOTFOUND, String::new()));
        assert_eq!(resolve(b"\xff"), (GCLAIM_ENOTFOUND, String::new()));
    }

    #[test]
    fn an_issue_is_found_or_not_or_the_tracker_failed() {
        for (issue, answer, json) in [
            ("1", GCLAIM_OK, "{}"),
            ("2", GCLAIM_ENOTFOUND, ""),
            ("3", GCLAIM_EIO, ""),
        ] {
            let mut got = Vec::new();
            let sink = collector(&mut got);
            let (id, typed) = ("r.git", issue);
            let status = as_plugin(&Kept::default(), |call| {
                // SAFETY: all pointers outlive the call.
                unsafe {
                    on_resolve_issue(
                        call,
                        id.as_ptr().cast(),
                        id.len(),
                        typed.as_ptr().cast(),
                        typed.len(),
                        &sink,
                    )
                }
            });
            assert_eq!(
                (status, got.as_slice()),
                (answer, json.as_bytes()),
                "{issue}"
            );
        }
    }

    #[test]
    fn a_panic_stays_on_this_side() {
        assert_eq!(resolve(b"panic"), (GCLAIM_EIO, String::new()));
    }

    #[test]
    fn only_a_known_right_that_the_host_grants_is_allowed() {
        for (id, access, answer) in [
            ("r.git", 1, GCLAIM_ALLOW),
            ("r.git", 2, GCLAIM_ALLOW),
            ("r.git", 3, GCLAIM_EDENIED),
            ("r.git", 0, GCLAIM_EDENIED),
            ("r.git", 4, GCLAIM_EDENIED),
            ("other", 1, GCLAIM_EDENIED),
        ] {
            let status = as_plugin(&Kept::default(), |call| {
                // SAFETY: the id outlives the call.
                unsafe { on_authorize(call, id.as_ptr().cast(), id.len(), access) }
            });
            assert_eq!(status, answer, "{id} {access}");
        }
    }

    #[test]
    fn output_goes_where_the_plugin_says_and_a_gone_reader_is_reported() {
        let kept = Kept::default();
        let write = |stream, data: &[u8]| {
            as_plugin(&kept, |call| {
                // SAFETY: the data outlives the call.
                unsafe { on_write(call, stream, data.as_ptr().cast(), data.len()) }
            })
        };
        assert_eq!(write(GCLAIM_STDOUT, b"{}"), GCLAIM_OK);
        assert_eq!(write(GCLAIM_STDERR, b"error"), GCLAIM_OK);
        assert_eq!(write(3, b"x"), GCLAIM_EINVAL);
        assert_eq!(write(GCLAIM_STDOUT, b"gone"), GCLAIM_ECANCEL);
        let kept = kept.0.into_inner();
        assert_eq!(
            kept,
            [
                (Stream::Stdout, b"{}".to_vec()),
                (Stream::Stderr, b"error".to_vec())
            ]
        );
    }

    #[test]
    fn null_pointers_are_a_broken_contract_and_no_crash() {
        // SAFETY: null is what the callbacks must stand.
        let statuses = unsafe {
            [
                on_resolve_repo(ptr::null_mut(), ptr::null(), 0, ptr::null()),
                on_authorize(ptr::null_mut(), ptr::null(), 5, 1),
                on_write(ptr::null_mut(), 1, ptr::null(), 1),
                on_repo_path(ptr::null_mut(), ptr::null(), 0, ptr::null()),
            ]
        };
        assert_eq!(statuses, [GCLAIM_EINVAL; 4]);
        let status = as_plugin(&Kept::default(), |call| {
            // SAFETY: as above, with a real call.
            unsafe { on_resolve_repo(call, ptr::null(), 7, ptr::null()) }
        });
        assert_eq!(status, GCLAIM_ENOTFOUND);
    }

    #[test]
    fn a_table_that_is_too_short_or_has_holes_is_refused() {
        unsafe extern "C" fn describe(_: *const gclaim_sink) -> i32 {
            GCLAIM_OK
        }
        let mut table = gclaim_plugin {
            size: size_of_u32::<gclaim_plugin>(),
            abi_minor: 0,
            describe: Some(describe),
            open: None,
            exec: None,
            query: None,
            close: None,
        };
        // SAFETY: null, or a table of this scope.
        unsafe {
            assert!(Plugin::from_table(ptr::null()).is_none());
            assert!(Plugin::from_table(&table).is_none());
            table.size = 8;
            assert!(Plugin::from_table(&table).is_none());
        }
    }
}
