//! `git_claim_plugin.h` in Rust: the same structs, constants and names, field
//! by field. Types alone; who calls through them is in the plugin's and the
//! host's `abi` modules. A test compiles the header and compares every size
//! and offset.

use std::ffi::{c_char, c_void};

pub const GCLAIM_ABI_MINOR: u32 = 0;
/// The name of the one exported symbol.
pub const GCLAIM_ENTRY: &str = "gclaim_plugin_v1";

pub const GCLAIM_OK: i32 = 0;
pub const GCLAIM_EINVAL: i32 = -1;
pub const GCLAIM_ECONFIG: i32 = -2;
pub const GCLAIM_EIO: i32 = -3;
pub const GCLAIM_EBUSY: i32 = -4;
pub const GCLAIM_ENOTFOUND: i32 = -5;
pub const GCLAIM_EDENIED: i32 = -6;
pub const GCLAIM_ECANCEL: i32 = -7;
pub const GCLAIM_EFORKED: i32 = -8;
pub const GCLAIM_EPANIC: i32 = -9;

pub const GCLAIM_ALLOW: i32 = 1;

pub const GCLAIM_READ: u32 = 1;
pub const GCLAIM_WRITE: u32 = 2;
pub const GCLAIM_ADMIN: u32 = 3;

pub const GCLAIM_REQUEST_HOST: u32 = 1;

pub const GCLAIM_STDOUT: u32 = 1;
pub const GCLAIM_STDERR: u32 = 2;

pub const GCLAIM_LOG_ERROR: u32 = 1;
pub const GCLAIM_LOG_WARN: u32 = 2;
pub const GCLAIM_LOG_INFO: u32 = 3;
pub const GCLAIM_LOG_DEBUG: u32 = 4;

/// `GCLAIM_HAS` of the header: whether a struct of `size` bytes, as its author
/// built it, reaches as far as `$field`. A macro, as a field is no value.
#[macro_export]
macro_rules! gclaim_has {
    ($type:ty, $field:ident, $size:expr) => {{
        const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
            ::std::mem::size_of::<F>()
        }
        let end =
            ::std::mem::offset_of!($type, $field) + size_of_field(|value: &$type| &value.$field);
        end <= $size as usize
    }};
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct gclaim_str {
    pub ptr: *const c_char,
    pub len: usize,
}

pub type SinkWrite = unsafe extern "C" fn(ctx: *mut c_void, data: *const c_void, len: usize) -> i32;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct gclaim_sink {
    pub ctx: *mut c_void,
    pub write: Option<SinkWrite>,
}

pub type HostLog =
    unsafe extern "C" fn(ctx: *mut c_void, level: u32, msg: *const c_char, len: usize);
pub type HostNow = unsafe extern "C" fn(ctx: *mut c_void, unix_ms: *mut i64) -> i32;
pub type HostResolveRepo = unsafe extern "C" fn(
    call: *mut c_void,
    name: *const c_char,
    len: usize,
    id: *const gclaim_sink,
) -> i32;
pub type HostAuthorize =
    unsafe extern "C" fn(call: *mut c_void, repo_id: *const c_char, len: usize, access: u32) -> i32;
pub type HostWrite =
    unsafe extern "C" fn(call: *mut c_void, stream: u32, data: *const c_void, len: usize) -> i32;
pub type HostRead =
    unsafe extern "C" fn(call: *mut c_void, buf: *mut c_void, cap: usize, got: *mut usize) -> i32;
pub type HostCancelled = unsafe extern "C" fn(call: *mut c_void) -> i32;
pub type HostRepoPath = unsafe extern "C" fn(
    call: *mut c_void,
    repo_id: *const c_char,
    len: usize,
    path: *const gclaim_sink,
) -> i32;
pub type HostResolveIssue = unsafe extern "C" fn(
    call: *mut c_void,
    repo_id: *const c_char,
    repo_len: usize,
    issue: *const c_char,
    issue_len: usize,
    json: *const gclaim_sink,
) -> i32;
pub type HostEvent =
    unsafe extern "C" fn(call: *mut c_void, json: *const c_char, len: usize) -> i32;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct gclaim_host {
    pub size: u32,
    pub abi_minor: u32,
    pub ctx: *mut c_void,
    pub log: Option<HostLog>,
    pub now: Option<HostNow>,
    pub resolve_repo: Option<HostResolveRepo>,
    pub authorize: Option<HostAuthorize>,
    pub write: Option<HostWrite>,
    pub read: Option<HostRead>,
    pub cancelled: Option<HostCancelled>,
    pub repo_path: Option<HostRepoPath>,
    pub resolve_issue: Option<HostResolveIssue>,
    pub event: Option<HostEvent>,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct gclaim_config {
    pub size: u32,
    pub flags: u32,
    pub settings: gclaim_str,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct gclaim_request {
    pub size: u32,
    pub flags: u32,
    pub call: *mut c_void,
    pub command: gclaim_str,
    pub user: gclaim_str,
    pub key: gclaim_str,
    pub peer: gclaim_str,
    pub deadline_ms: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct gclaim_query {
    pub size: u32,
    pub flags: u32,
    pub call: *mut c_void,
    pub name: gclaim_str,
    pub params: gclaim_str,
    pub user: gclaim_str,
    pub deadline_ms: u32,
    pub reserved: u32,
}

/// An open plugin; only ever behind a pointer.
#[repr(C)]
#[derive(Debug)]
pub struct gclaim_instance {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct gclaim_plugin {
    pub size: u32,
    pub abi_minor: u32,
    pub describe: Option<unsafe extern "C" fn(out: *const gclaim_sink) -> i32>,
    pub open: Option<
        unsafe extern "C" fn(
            host: *const gclaim_host,
            config: *const gclaim_config,
            out: *mut *mut gclaim_instance,
            err: *const gclaim_sink,
        ) -> i32,
    >,
    pub exec: Option<
        unsafe extern "C" fn(
            instance: *mut gclaim_instance,
            request: *const gclaim_request,
            exit_code: *mut u32,
        ) -> i32,
    >,
    pub query: Option<
        unsafe extern "C" fn(
            instance: *mut gclaim_instance,
            query: *const gclaim_query,
            out: *const gclaim_sink,
        ) -> i32,
    >,
    pub close: Option<unsafe extern "C" fn(instance: *mut gclaim_instance)>,
}

/// The type of the symbol [`GCLAIM_ENTRY`].
pub type gclaim_entry_fn = unsafe extern "C" fn() -> *const gclaim_plugin;
