//! The CUDA driver API, as much as we need of it.

use super::DriverError;
use super::library::{function, open_first};
use super::stream::{Event, Module, Stream};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::rc::Rc;

pub(super) type Handle = *mut c_void;

/// Declares the table of functions, each with its name and type as in `cuda.h`.
macro_rules! table {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// Functions of the driver.
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl Api {
            fn load(library: &'static Library) -> Result<Self, DriverError> {
                // SAFETY: the types are those of `cuda.h`.
                unsafe { Ok(Self { $($name: function(library, DRIVER, $symbol)?,)* }) }
            }
        }
    };
}

/// The driver in messages.
const DRIVER: &str = "the NVIDIA driver";

table! {
    init = "cuInit": fn(c_uint);
    driver_version = "cuDriverGetVersion": fn(*mut c_int);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    device_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2": fn(*mut usize, c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    device_bus = "cuDeviceGetPCIBusId": fn(*mut c_char, c_int, c_int);
    context_retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    context_set = "cuCtxSetCurrent": fn(Handle);
    module_load = "cuModuleLoadDataEx": fn(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_function = "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    free = "cuMemFree_v2": fn(u64);
    memory_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    to_device = "cuMemcpyHtoD_v2": fn(u64, *const c_void, usize);
    to_host = "cuMemcpyDtoH_v2": fn(*mut c_void, u64, usize);
    copy_async = "cuMemcpyDtoDAsync_v2": fn(u64, u64, usize, Handle);
    to_device_async = "cuMemcpyHtoDAsync_v2": fn(u64, *const c_void, usize, Handle);
    to_host_async = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, u64, usize, Handle);
    set_async = "cuMemsetD32Async": fn(u64, c_uint, usize, Handle);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    stream_create = "cuStreamCreate": fn(*mut Handle, c_uint);
    stream_synchronize = "cuStreamSynchronize": fn(Handle);
    event_create = "cuEventCreate": fn(*mut Handle, c_uint);
    event_record = "cuEventRecord": fn(Handle, Handle);
    event_synchronize = "cuEventSynchronize": fn(Handle);
    event_elapsed = "cuEventElapsedTime": fn(*mut f32, Handle, Handle);
    event_destroy = "cuEventDestroy_v2": fn(Handle);
    launch = "cuLaunchKernel": fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    error_name = "cuGetErrorName": fn(c_int, *mut *const c_char);
    error_string = "cuGetErrorString": fn(c_int, *mut *const c_char);
}

/// Functions that drivers before CUDA 11.4 lack.
#[derive(Clone, Copy)]
pub(super) struct GraphApi {
    pub(super) begin: unsafe extern "C" fn(Handle, c_int) -> c_int,
    pub(super) end: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    pub(super) instantiate: unsafe extern "C" fn(*mut Handle, Handle, u64) -> c_int,
    pub(super) launch: unsafe extern "C" fn(Handle, Handle) -> c_int,
}

impl GraphApi {
    fn load(library: &'static Library) -> Result<Self, DriverError> {
        // SAFETY: the types are those of `cuda.h`.
        unsafe {
            Ok(Self {
                begin: function(library, DRIVER, "cuStreamBeginCapture_v2")?,
                end: function(library, DRIVER, "cuStreamEndCapture")?,
                instantiate: function(library, DRIVER, "cuGraphInstantiateWithFlags")?,
                launch: function(library, DRIVER, "cuGraphLaunch")?,
            })
        }
    }
}

/// What the driver says about a GPU.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DeviceFacts {
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// PCI address.
    pub bus: String,
    /// CUDA version of the driver, such as 13000.
    pub cuda_version: u32,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub sm_count: u32,
    /// Highest clock of the multiprocessors.
    pub boost_khz: u32,
    /// Memory clock; 0 where the driver no longer says.
    pub memory_khz: u32,
    /// Width of the memory bus.
    pub bus_bits: u32,
    /// L2 size.
    pub l2_bytes: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Limits of one multiprocessor.
    pub threads_per_sm: u32,
    /// Resident blocks; 0 where the driver does not say.
    pub blocks_per_sm: u32,
    /// 32-bit registers.
    pub registers_per_sm: u32,
    /// Shared memory.
    pub shared_per_sm_bytes: u32,
    /// Most shared memory of one block.
    pub shared_per_block_bytes: u32,
    /// Threads in lock step.
    pub warp_size: u32,
}

/// The driver with the context of one GPU. Everything made from it stays on the thread that made it.
pub struct Cuda {
    pub(super) api: Api,
    pub(super) graphs: Option<GraphApi>,
    device: c_int,
    _stays_here: std::marker::PhantomData<Rc<()>>,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Cuda {
    /// Loads the driver and opens one GPU.
    pub fn open(ordinal: u32) -> Result<Rc<Self>, DriverError> {
        let names: Vec<PathBuf> = if cfg!(windows) {
            vec![PathBuf::from("nvcuda.dll")]
        } else {
            vec![PathBuf::from("libcuda.so.1"), PathBuf::from("libcuda.so")]
        };
        let library = open_first(&names).map_err(DriverError::NoDriver)?;
        let mut cuda = Self {
            api: Api::load(library)?,
            graphs: GraphApi::load(library).ok(),
            device: 0,
            _stays_here: std::marker::PhantomData,
        };
        // SAFETY: arguments as `cuda.h` asks; out-pointers are to live locals.
        unsafe {
            match (cuda.api.init)(0) {
                // CUDA_ERROR_NO_DEVICE, and the code of a driver stub without a device.
                100 => return Err(DriverError::NoDevice),
                code => cuda.check("cuInit", code)?,
            }
            let mut count = 0;
            cuda.check("cuDeviceGetCount", (cuda.api.device_count)(&raw mut count))?;
            if count < 1 {
                return Err(DriverError::NoDevice);
            }
            if ordinal >= count as u32 {
                return Err(DriverError::Ordinal { asked: ordinal, count: count as u32 });
            }
            let mut device = 0;
            cuda.check("cuDeviceGet", (cuda.api.device_get)(&raw mut device, ordinal.cast_signed()))?;
            cuda.device = device;
            let mut context = null_mut();
            let code = (cuda.api.context_retain)(&raw mut context, device);
            cuda.check("cuDevicePrimaryCtxRetain", code)?;
            cuda.check("cuCtxSetCurrent", (cuda.api.context_set)(context))?;
        }
        Ok(Rc::new(cuda))
    }

    /// Turns a status into an error with the driver's words.
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        let mut words = Vec::new();
        for f in [self.api.error_name, self.api.error_string] {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: the driver stores a pointer to a static string, or null for a code it does not know.
            unsafe {
                if f(code, &raw mut text) == 0 && !text.is_null() {
                    words.push(CStr::from_ptr(text).to_string_lossy().to_string());
                }
            }
        }
        let reason = if words.is_empty() { format!("error {code}") } else { words.join(", ") };
        Err(DriverError::Call { call, reason })
    }

    fn text(
        &self,
        call: &'static str,
        f: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    ) -> Result<String, DriverError> {
        const LENGTH: c_int = 256;
        let mut bytes = [0u8; LENGTH as usize];
        // SAFETY: the buffer is as long as we say, and the driver ends the text with a zero within it.
        unsafe {
            self.check(call, f(bytes.as_mut_ptr().cast(), LENGTH, self.device))?;
        }
        let text = CStr::from_bytes_until_nul(&bytes).map(|t| t.to_string_lossy().to_string());
        Ok(text.unwrap_or_default().trim().to_string())
    }

    /// What the driver says about the GPU.
    pub fn facts(&self) -> Result<DeviceFacts, DriverError> {
        let attribute = |id: c_int| {
            let mut value = 0;
            // SAFETY: the out-pointer is to a live local.
            let code = unsafe { (self.api.device_attribute)(&raw mut value, id, self.device) };
            // A driver that does not know an attribute leaves the figure unknown: 0.
            if code == 0 { value.max(0) as u32 } else { 0 }
        };
        let (mut version, mut memory) = (0, 0usize);
        // SAFETY: the out-pointers are to live locals.
        unsafe {
            self.check("cuDriverGetVersion", (self.api.driver_version)(&raw mut version))?;
            self.check("cuDeviceTotalMem", (self.api.device_memory)(&raw mut memory, self.device))?;
        }
        // The numbers are those of CUdevice_attribute in `cuda.h`.
        Ok(DeviceFacts {
            name: self.text("cuDeviceGetName", self.api.device_name)?,
            bus: self.text("cuDeviceGetPCIBusId", self.api.device_bus)?,
            cuda_version: version.max(0) as u32,
            capability: (attribute(75), attribute(76)),
            sm_count: attribute(16),
            boost_khz: attribute(13),
            memory_khz: attribute(36),
            bus_bits: attribute(37),
            l2_bytes: u64::from(attribute(38)),
            memory_bytes: memory as u64,
            threads_per_sm: attribute(39),
            blocks_per_sm: attribute(106),
            registers_per_sm: attribute(82),
            shared_per_sm_bytes: attribute(81),
            shared_per_block_bytes: attribute(97),
            warp_size: attribute(10),
        })
    }

    /// Free memory in bytes.
    pub fn free_memory(&self) -> Result<u64, DriverError> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the out-pointers are to live locals.
        let code = unsafe { (self.api.memory_info)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", code)?;
        Ok(free as u64)
    }

    /// Lets the driver compile PTX.
    pub fn module(self: &Rc<Self>, ptx: &str) -> Result<Module, DriverError> {
        let text = CString::new(ptx).map_err(|_| DriverError::Misuse("PTX with a zero byte"))?;
        let mut log = vec![0u8; 4096];
        // CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
        let mut options = [5, 6];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut module = null_mut();
        // SAFETY: text ends with a zero; the option arrays have the length we say and outlive the call.
        let code = unsafe {
            (self.api.module_load)(
                &raw mut module,
                text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        self.check("cuModuleLoadData", code).map_err(|error| {
            let said = CStr::from_bytes_until_nul(&log).map(|t| t.to_string_lossy().trim().to_string());
            match (error, said) {
                (DriverError::Call { call, reason }, Ok(said)) if !said.is_empty() => {
                    DriverError::Call { call, reason: format!("{reason}: {said}") }
                }
                (error, _) => error,
            }
        })?;
        Ok(Module { cuda: Rc::clone(self), module })
    }

    /// A stream.
    pub fn stream(self: &Rc<Self>) -> Result<Stream, DriverError> {
        let mut stream = null_mut();
        // SAFETY: the out-pointer is to a live local. 1: CU_STREAM_NON_BLOCKING.
        self.check("cuStreamCreate", unsafe { (self.api.stream_create)(&raw mut stream, 1) })?;
        Ok(Stream { cuda: Rc::clone(self), stream })
    }

    /// An event.
    pub fn event(self: &Rc<Self>) -> Result<Event, DriverError> {
        let mut event = null_mut();
        // SAFETY: the out-pointer is to a live local.
        self.check("cuEventCreate", unsafe { (self.api.event_create)(&raw mut event, 0) })?;
        Ok(Event { cuda: Rc::clone(self), event })
    }
}
