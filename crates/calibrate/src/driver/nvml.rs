//! The driver's management library: what the board is called and how much power it may draw. Never required.

use super::library::{function, open_first};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;

/// What the management library knows.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Board {
    /// Version of the driver, such as `580.159.04`.
    pub driver: Option<String>,
    /// Default power limit in watts.
    pub power_limit_w: Option<f64>,
    /// Power drawn at the time of asking.
    pub power_w: Option<f64>,
}

/// Asks about the board at that PCI address. What cannot be had is left out.
pub fn board(bus: &str) -> Board {
    let names: Vec<PathBuf> = if cfg!(windows) {
        vec![PathBuf::from("nvml.dll")]
    } else {
        vec![PathBuf::from("libnvidia-ml.so.1"), PathBuf::from("libnvidia-ml.so")]
    };
    open_first(&names).ok().and_then(|library| ask(library, bus)).unwrap_or_default()
}

fn ask(library: &'static Library, bus: &str) -> Option<Board> {
    type Plain = unsafe extern "C" fn() -> c_int;
    type Version = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
    type Find = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
    type Power = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;
    let name = "NVML";
    let bus = CString::new(bus).ok()?;
    // SAFETY: the types are those of `nvml.h`; buffers are as long as we say; out-pointers are to live locals.
    unsafe {
        let init: Plain = function(library, name, "nvmlInit_v2").ok()?;
        let version: Version = function(library, name, "nvmlSystemGetDriverVersion").ok()?;
        if init() != 0 {
            return None;
        }
        let mut board = Board::default();
        let mut text = [0u8; 80];
        if version(text.as_mut_ptr().cast(), text.len() as c_uint) == 0 {
            let text = CStr::from_bytes_until_nul(&text).ok()?;
            board.driver = Some(text.to_string_lossy().to_string());
        }
        let find: Find = function(library, name, "nvmlDeviceGetHandleByPciBusId_v2").ok()?;
        let mut device = null_mut();
        if find(bus.as_ptr(), &raw mut device) == 0 {
            let watts = |symbol: &str| {
                let f: Power = function(library, name, symbol).ok()?;
                let mut milliwatts = 0;
                (f(device, &raw mut milliwatts) == 0).then(|| f64::from(milliwatts) / 1e3)
            };
            board.power_limit_w = watts("nvmlDeviceGetPowerManagementDefaultLimit");
            board.power_w = watts("nvmlDeviceGetPowerUsage");
        }
        Some(board)
    }
}
