//! The C ABI of `git_claim_plugin.h`: the one exported symbol, the table behind
//! it, and the host's callbacks as a safe trait.
//!
//! This is the only module with unsafe code. Every entry checks what the caller
//! handed over, runs behind `catch_unwind`, and answers with a status; a panic
//! poisons its instance, which from then on refuses everything.

use std::any::Any;
use std::ffi::{OsString, c_void};
use std::mem::size_of;
use std::os::unix::ffi::OsStringExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use git_claim_api::abi::{
    GCLAIM_ABI_MINOR, GCLAIM_ALLOW, GCLAIM_EBUSY, GCLAIM_ECANCEL, GCLAIM_ECONFIG, GCLAIM_EFORKED,
    GCLAIM_EINVAL, GCLAIM_EIO, GCLAIM_ENOTFOUND, GCLAIM_EPANIC, GCLAIM_LOG_ERROR, GCLAIM_LOG_INFO,
    GCLAIM_LOG_WARN, GCLAIM_OK, GCLAIM_REQUEST_HOST, GCLAIM_STDERR, GCLAIM_STDOUT, gclaim_config,
    gclaim_host, gclaim_instance, gclaim_plugin, gclaim_query, gclaim_request, gclaim_sink,
    gclaim_str,
};
use git_claim_api::access::Access;
use git_claim_api::query::QUERIES;
use git_claim_api::settings::{DEFAULT_MAX_TTL, DEFAULT_TTL, PluginSettings};
use git_claim_api::text::{escape, is_unsafe};
use git_claim_api::verb::SUBVERBS;
use git_claim_api::{REQUEST_DEADLINE_MS, VERB, gclaim_has};
use serde_json::json;

use crate::host::{Host, HostError, Input, Level, Stream};
use crate::ledger::{self, Ledger, LedgerError};
use crate::queries::QueryError;
use crate::server::{Asker, Server};

/// The most that a host may hand back through a sink, in bytes.
const MAX_ANSWER: usize = 1024 * 1024;

static PLUGIN: gclaim_plugin = gclaim_plugin {
    size: size_of::<gclaim_plugin>() as u32,
    abi_minor: GCLAIM_ABI_MINOR,
    describe: Some(describe),
    open: Some(open),
    exec: Some(exec),
    query: Some(query),
    close: Some(close),
};

/// The only exported symbol. Never null; the table is static and immutable.
#[unsafe(no_mangle)]
pub extern "C" fn gclaim_plugin_v1() -> *const gclaim_plugin {
    &raw const PLUGIN
}

/// What `open` makes and a `gclaim_instance` pointer stands for.
struct Instance {
    host: gclaim_host,
    settings: PluginSettings,
    ledger: Box<dyn Ledger>,
    /// The process that opened it: neither SQLite's connections nor its locks
    /// survive a fork.
    process: u32,
    /// Set once a panic was caught: what it left behind is not to be trusted.
    is_poisoned: AtomicBool,
}

/// A status of the ABI; only negative ones are made into errors.
type Status = i32;

unsafe extern "C" fn describe(out: *const gclaim_sink) -> Status {
    guard(None, || {
        let facts = json!({
            "name": "git-claim",
            "version": env!("CARGO_PKG_VERSION"),
            "verbs": [VERB],
            "subverbs": SUBVERBS,
            "queries": QUERIES,
            "settings": { "ledger": null, "max_ttl": DEFAULT_MAX_TTL, "default_ttl": DEFAULT_TTL },
        });
        // SAFETY: the caller's sink, as the header describes it; it lives until
        // this call returns.
        let out = unsafe { out.as_ref() }.ok_or(GCLAIM_EINVAL)?;
        emit(out, facts.to_string().as_bytes())
    })
}

unsafe extern "C" fn open(
    host: *const gclaim_host,
    config: *const gclaim_config,
    out: *mut *mut gclaim_instance,
    err: *const gclaim_sink,
) -> Status {
    silence_panics();
    guard(None, || {
        // SAFETY: `out` is null or points to a pointer of the caller's.
        let out = unsafe { out.as_mut() }.ok_or(GCLAIM_EINVAL)?;
        *out = ptr::null_mut();
        // SAFETY: null or the caller's sink, which lives until this call returns.
        let err = unsafe { err.as_ref() };
        let refuse = |status: Status, why: &str| {
            if let Some(err) = err {
                // The status says enough where even this fails.
                let _ = emit(err, escape(why).as_bytes());
            }
            status
        };
        // SAFETY: null or a host struct of at least `size` bytes, as the header
        // demands.
        let host = unsafe { copy_host(host) }
            .ok_or_else(|| refuse(GCLAIM_EINVAL, "the host struct lacks a required member"))?;
        // SAFETY: null or a config struct of at least `size` bytes.
        let settings =
            unsafe { read_settings(config) }.map_err(|(status, why)| refuse(status, &why))?;
        let ledger = ledger::open(&settings).map_err(|error| {
            let status = match &error {
                LedgerError::Busy => GCLAIM_EBUSY,
                LedgerError::Unfit { .. } => GCLAIM_ECONFIG,
                _ => GCLAIM_EIO,
            };
            refuse(status, &error.to_string())
        })?;
        let instance = Box::new(Instance {
            host,
            settings,
            ledger,
            process: std::process::id(),
            is_poisoned: AtomicBool::new(false),
        });
        *out = Box::into_raw(instance).cast();
        Ok(())
    })
}

unsafe extern "C" fn exec(
    instance: *mut gclaim_instance,
    request: *const gclaim_request,
    exit_code: *mut u32,
) -> Status {
    // SAFETY: null or what `open` made and `close` has not taken back.
    let instance = match unsafe { instance_of(instance) } {
        Ok(instance) => instance,
        Err(status) => return status,
    };
    guard(Some(instance), || {
        // SAFETY: null or the caller's struct, which lives until this call
        // returns; its first member says how far it reaches.
        let request = unsafe { request.as_ref() }.ok_or(GCLAIM_EINVAL)?;
        // SAFETY: null or the caller's integer.
        let exit_code = unsafe { exit_code.as_mut() }.ok_or(GCLAIM_EINVAL)?;
        if !gclaim_has!(gclaim_request, reserved, request.size)
            || request.flags & !GCLAIM_REQUEST_HOST != 0
            || request.reserved != 0
        {
            return Err(GCLAIM_EINVAL);
        }
        // SAFETY: the request's strings are borrowed until this call returns.
        let (command, user, key) = unsafe {
            (
                bytes(&request.command)?,
                text(&request.user)?,
                text(&request.key)?,
            )
        };
        if user.is_empty() || user.chars().chain(key.chars()).any(is_unsafe) {
            return Err(GCLAIM_EINVAL);
        }
        let host = CallHost {
            host: &instance.host,
            call: request.call,
        };
        let server = Server {
            ledger: &*instance.ledger,
            settings: &instance.settings,
            host: &host,
        };
        let asker = Asker {
            name: user,
            key: (!key.is_empty()).then_some(key),
            is_host: request.flags & GCLAIM_REQUEST_HOST != 0,
        };
        let exit = server
            .exec(command, asker, deadline(request.deadline_ms))
            .ok_or(GCLAIM_ECANCEL)?;
        *exit_code = exit.code().into();
        Ok(())
    })
}

unsafe extern "C" fn query(
    instance: *mut gclaim_instance,
    query: *const gclaim_query,
    out: *const gclaim_sink,
) -> Status {
    // SAFETY: null or what `open` made and `close` has not taken back.
    let instance = match unsafe { instance_of(instance) } {
        Ok(instance) => instance,
        Err(status) => return status,
    };
    guard(Some(instance), || {
        // SAFETY: null or the caller's struct, as in `exec`.
        let query = unsafe { query.as_ref() }.ok_or(GCLAIM_EINVAL)?;
        // SAFETY: null or the caller's sink, which lives until this call returns.
        let out = unsafe { out.as_ref() }.ok_or(GCLAIM_EINVAL)?;
        if !gclaim_has!(gclaim_query, reserved, query.size)
            || query.flags != 0
            || query.reserved != 0
        {
            return Err(GCLAIM_EINVAL);
        }
        // SAFETY: the query's strings are borrowed until this call returns.
        let (name, params, user) = unsafe {
            (
                text(&query.name)?,
                bytes(&query.params)?,
                text(&query.user)?,
            )
        };
        if user.chars().any(is_unsafe) {
            return Err(GCLAIM_EINVAL);
        }
        let host = CallHost {
            host: &instance.host,
            call: query.call,
        };
        let server = Server {
            ledger: &*instance.ledger,
            settings: &instance.settings,
            host: &host,
        };
        let viewer = Asker {
            name: user,
            key: None,
            is_host: false,
        };
        let answer = server
            .query(name, params, viewer, deadline(query.deadline_ms))
            .map_err(|error| match error {
                QueryError::Params(_) => GCLAIM_EINVAL,
                QueryError::NotFound => GCLAIM_ENOTFOUND,
                QueryError::Failed(_) => GCLAIM_EIO,
                QueryError::Gone => GCLAIM_ECANCEL,
            })?;
        emit(out, answer.as_bytes())
    })
}

unsafe extern "C" fn close(instance: *mut gclaim_instance) {
    let instance: *mut Instance = instance.cast();
    // SAFETY: null or what `open` made; the caller hands it back once, after
    // every call has returned.
    let Some(opened) = (unsafe { instance.as_ref() }) else {
        return;
    };
    if opened.process != std::process::id() {
        return;
    }
    guard(None, || {
        // SAFETY: it came from `Box::into_raw` in `open`, and nobody uses it
        // any more.
        drop(unsafe { Box::from_raw(instance) });
        Ok(())
    });
}

/// Runs an entry's body: a panic becomes a status and poisons the instance.
fn guard(instance: Option<&Instance>, body: impl FnOnce() -> Result<(), Status>) -> Status {
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => GCLAIM_OK,
        Ok(Err(status)) => status,
        Err(payload) => {
            if let Some(instance) = instance {
                instance.is_poisoned.store(true, Ordering::Release);
                let host = CallHost {
                    host: &instance.host,
                    call: ptr::null_mut(),
                };
                host.log(Level::Error, &escape(&panic_message(&*payload)));
            }
            // Dropping a payload may panic again.
            std::mem::forget(payload);
            GCLAIM_EPANIC
        }
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!(
        "git-claim's plugin failed: {}",
        message.unwrap_or("no message")
    )
}

/// The default hook would print to the host's stderr, which may be the user's
/// terminal. The plugin has a standard library of its own, so this touches no
/// hook of the host's.
fn silence_panics() {
    static SILENCE: Once = Once::new();
    SILENCE.call_once(|| {
        if !cfg!(test) {
            panic::set_hook(Box::new(|_| {}));
        }
    });
}

/// The instance behind a caller's pointer, if it may be used here and now.
///
/// # Safety
/// Null, or a pointer that `open` made and `close` has not taken back.
unsafe fn instance_of<'a>(instance: *mut gclaim_instance) -> Result<&'a Instance, Status> {
    let instance: *const Instance = instance.cast();
    // SAFETY: the caller's promise.
    let instance = unsafe { instance.as_ref() }.ok_or(GCLAIM_EINVAL)?;
    if instance.process != std::process::id() {
        return Err(GCLAIM_EFORKED);
    }
    if instance.is_poisoned.load(Ordering::Acquire) {
        return Err(GCLAIM_EPANIC);
    }
    Ok(instance)
}

/// Copies as much of the host's struct as its author built; what lies beyond
/// is absent. `None` if a required member is.
///
/// # Safety
/// Null, or a struct of at least as many bytes as its first member says.
unsafe fn copy_host(host: *const gclaim_host) -> Option<gclaim_host> {
    if host.is_null() {
        return None;
    }
    // SAFETY: `size` is the first member of every version of the struct.
    let size = unsafe { (*host).size };
    if !gclaim_has!(gclaim_host, write, size) {
        return None;
    }
    let mut copy = gclaim_host {
        size: size_of::<gclaim_host>() as u32,
        abi_minor: 0,
        ctx: ptr::null_mut(),
        log: None,
        now: None,
        resolve_repo: None,
        authorize: None,
        write: None,
        read: None,
        cancelled: None,
        repo_path: None,
        resolve_issue: None,
        event: None,
    };
    // A member that the author's struct cuts in half is absent too.
    let whole_members = (size as usize) / align_of::<gclaim_host>() * align_of::<gclaim_host>();
    let length = whole_members.min(size_of::<gclaim_host>());
    // SAFETY: both are at least `length` bytes long and do not overlap; every
    // bit pattern of the members is a valid `Option<fn>`, pointer or integer,
    // given that the author filled them as the header says.
    unsafe {
        ptr::copy_nonoverlapping(host.cast::<u8>(), (&raw mut copy).cast::<u8>(), length);
    }
    copy.size = size;
    let is_complete = copy.log.is_some()
        && copy.resolve_repo.is_some()
        && copy.authorize.is_some()
        && copy.write.is_some();
    is_complete.then_some(copy)
}

/// The settings of a config struct.
///
/// # Safety
/// Null, or a struct of at least as many bytes as its first member says, whose
/// string lives until the call returns.
unsafe fn read_settings(config: *const gclaim_config) -> Result<PluginSettings, (Status, String)> {
    let invalid = |why: &str| (GCLAIM_EINVAL, why.to_owned());
    // SAFETY: the caller's promise.
    let config = unsafe { config.as_ref() }.ok_or_else(|| invalid("there is no config"))?;
    if !gclaim_has!(gclaim_config, settings, config.size) {
        return Err(invalid("the config struct is too short"));
    }
    if config.flags != 0 {
        return Err(invalid("the config has unknown flags"));
    }
    // SAFETY: the caller's promise.
    let settings = unsafe { bytes(&config.settings) }
        .map_err(|status| (status, "the settings have no bytes".to_owned()))?;
    serde_json::from_slice(settings)
        .map_err(|error| (GCLAIM_ECONFIG, format!("the settings are refused: {error}")))
}

/// The bytes of a string of the ABI.
///
/// # Safety
/// `string` describes memory that lives and does not change during `'a`.
unsafe fn bytes(string: &gclaim_str) -> Result<&[u8], Status> {
    if string.len == 0 {
        return Ok(&[]);
    }
    if string.ptr.is_null() || isize::try_from(string.len).is_err() {
        return Err(GCLAIM_EINVAL);
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(string.ptr.cast(), string.len) })
}

/// A string of the ABI that must be UTF-8.
///
/// # Safety
/// As for [`bytes`].
unsafe fn text(string: &gclaim_str) -> Result<&str, Status> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(string) }?;
    std::str::from_utf8(bytes).map_err(|_| GCLAIM_EINVAL)
}

/// Hands `data` to a sink of the host's.
fn emit(sink: &gclaim_sink, data: &[u8]) -> Result<(), Status> {
    let write = sink.write.ok_or(GCLAIM_EINVAL)?;
    // SAFETY: the function and the context belong together; `data` is borrowed
    // until it returns.
    match unsafe { write(sink.ctx, data.as_ptr().cast(), data.len()) } {
        GCLAIM_OK => Ok(()),
        _ => Err(GCLAIM_ECANCEL),
    }
}

fn deadline(milliseconds: u32) -> Instant {
    let milliseconds = match milliseconds {
        0 => REQUEST_DEADLINE_MS,
        given => given,
    };
    Instant::now() + Duration::from_millis(milliseconds.into())
}

/// The host during one call.
struct CallHost<'a> {
    host: &'a gclaim_host,
    call: *mut c_void,
}

/// Collects what a host writes into a sink of ours.
struct Collector {
    bytes: Vec<u8>,
}

unsafe extern "C" fn collect(ctx: *mut c_void, data: *const c_void, len: usize) -> Status {
    let collector: *mut Collector = ctx.cast();
    // SAFETY: `ctx` is the collector of the call under way, on this thread.
    let Some(collector) = (unsafe { collector.as_mut() }) else {
        return GCLAIM_EINVAL;
    };
    let piece = gclaim_str {
        ptr: data.cast(),
        len,
    };
    if len > MAX_ANSWER - collector.bytes.len().min(MAX_ANSWER) {
        return GCLAIM_EINVAL;
    }
    // SAFETY: the host lends `data` until this returns.
    match unsafe { bytes(&piece) } {
        Ok(piece) => {
            collector.bytes.extend_from_slice(piece);
            GCLAIM_OK
        }
        Err(status) => status,
    }
}

impl CallHost<'_> {
    /// What the host writes into a sink while `ask` runs.
    fn collect(
        &self,
        ask: impl FnOnce(*const gclaim_sink) -> Status,
    ) -> Result<Vec<u8>, HostError> {
        let mut collector = Collector { bytes: Vec::new() };
        let sink = gclaim_sink {
            ctx: (&raw mut collector).cast(),
            write: Some(collect),
        };
        match ask(&raw const sink) {
            GCLAIM_OK => Ok(collector.bytes),
            GCLAIM_ENOTFOUND => Err(HostError::NotFound),
            status => Err(HostError::Failed(status)),
        }
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, HostError> {
    String::from_utf8(bytes).map_err(|_| HostError::Failed(GCLAIM_EINVAL))
}

// The callbacks below are called as the header allows: during `exec` or
// `query`, on that call's thread, with that call's `call`; `log` and `now` at
// any time. Strings are lent until the callback returns.
impl Host for CallHost<'_> {
    fn now_ms(&self) -> i64 {
        let mut unix_ms = 0;
        if let Some(now) = self.host.now
            // SAFETY: see above.
            && unsafe { now(self.host.ctx, &raw mut unix_ms) } == GCLAIM_OK
        {
            return unix_ms;
        }
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn log(&self, level: Level, line: &str) {
        let level = match level {
            Level::Error => GCLAIM_LOG_ERROR,
            Level::Warn => GCLAIM_LOG_WARN,
            Level::Info => GCLAIM_LOG_INFO,
        };
        if let Some(log) = self.host.log {
            // SAFETY: see above.
            unsafe { log(self.host.ctx, level, line.as_ptr().cast(), line.len()) };
        }
    }

    fn resolve_repo(&self, name: &str) -> Result<String, HostError> {
        let resolve = self
            .host
            .resolve_repo
            .ok_or(HostError::Failed(GCLAIM_EINVAL))?;
        let id = self.collect(|sink| {
            // SAFETY: see above.
            unsafe { resolve(self.call, name.as_ptr().cast(), name.len(), sink) }
        })?;
        let id = utf8(id)?;
        if id.is_empty() || id.len() > 255 || id.chars().any(is_unsafe) {
            return Err(HostError::Failed(GCLAIM_EINVAL));
        }
        Ok(id)
    }

    fn authorize(&self, repo: &str, access: Access) -> bool {
        let Some(authorize) = self.host.authorize else {
            return false;
        };
        // SAFETY: see above.
        let answer =
            unsafe { authorize(self.call, repo.as_ptr().cast(), repo.len(), access.to_abi()) };
        answer == GCLAIM_ALLOW
    }

    fn write(&self, stream: Stream, data: &[u8]) -> Result<(), HostError> {
        let write = self.host.write.ok_or(HostError::Failed(GCLAIM_EINVAL))?;
        let stream = match stream {
            Stream::Stdout => GCLAIM_STDOUT,
            Stream::Stderr => GCLAIM_STDERR,
        };
        // SAFETY: see above.
        match unsafe { write(self.call, stream, data.as_ptr().cast(), data.len()) } {
            GCLAIM_OK => Ok(()),
            status => Err(HostError::Failed(status)),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> Result<Input, HostError> {
        let Some(read) = self.host.read else {
            return Ok(Input::End);
        };
        let mut got = 0;
        // SAFETY: see above; the host writes `buffer.len()` bytes at most.
        let status = unsafe {
            read(
                self.call,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut got,
            )
        };
        match status {
            GCLAIM_OK if got == 0 => Ok(Input::End),
            GCLAIM_OK if got <= buffer.len() => Ok(Input::Bytes(got)),
            GCLAIM_OK => Err(HostError::Failed(GCLAIM_EINVAL)),
            GCLAIM_EBUSY => Ok(Input::NotYet),
            status => Err(HostError::Failed(status)),
        }
    }

    fn is_cancelled(&self) -> bool {
        // SAFETY: see above.
        self.host
            .cancelled
            .is_some_and(|cancelled| unsafe { cancelled(self.call) } != 0)
    }

    fn repo_path(&self, repo: &str) -> Result<Option<PathBuf>, HostError> {
        let Some(repo_path) = self.host.repo_path else {
            return Ok(None);
        };
        let path = self.collect(|sink| {
            // SAFETY: see above.
            unsafe { repo_path(self.call, repo.as_ptr().cast(), repo.len(), sink) }
        })?;
        let path = PathBuf::from(OsString::from_vec(path));
        if path.is_absolute() {
            Ok(Some(path))
        } else {
            Err(HostError::Failed(GCLAIM_EINVAL))
        }
    }

    fn has_tracker(&self) -> bool {
        self.host.resolve_issue.is_some()
    }

    fn resolve_issue(&self, repo: &str, issue: &str) -> Result<String, HostError> {
        let resolve = self.host.resolve_issue.ok_or(HostError::NotFound)?;
        let json = self.collect(|sink| {
            // SAFETY: see above.
            unsafe {
                resolve(
                    self.call,
                    repo.as_ptr().cast(),
                    repo.len(),
                    issue.as_ptr().cast(),
                    issue.len(),
                    sink,
                )
            }
        })?;
        utf8(json)
    }

    fn hears_events(&self) -> bool {
        self.host.event.is_some()
    }

    fn event(&self, json: &str) -> Result<(), HostError> {
        let Some(event) = self.host.event else {
            return Ok(());
        };
        // SAFETY: see above.
        match unsafe { event(self.call, json.as_ptr().cast(), json.len()) } {
            GCLAIM_OK => Ok(()),
            status => Err(HostError::Failed(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_and_does_not_get_out() {
        assert_eq!(guard(None, || panic!("boom")), GCLAIM_EPANIC);
        assert_eq!(guard(None, || Err(GCLAIM_EIO)), GCLAIM_EIO);
        assert_eq!(guard(None, || Ok(())), GCLAIM_OK);
    }

    #[test]
    fn null_pointers_are_answered_not_followed() {
        // SAFETY: null is allowed everywhere; that is the test.
        unsafe {
            assert_eq!(describe(ptr::null()), GCLAIM_EINVAL);
            assert_eq!(
                open(ptr::null(), ptr::null(), ptr::null_mut(), ptr::null()),
                GCLAIM_EINVAL
            );
            assert_eq!(
                exec(ptr::null_mut(), ptr::null(), ptr::null_mut()),
                GCLAIM_EINVAL
            );
            assert_eq!(
                query(ptr::null_mut(), ptr::null(), ptr::null()),
                GCLAIM_EINVAL
            );
            close(ptr::null_mut());
        }
    }
}
