//! Memory of the device, and memory of the host that the device can copy by itself.

use super::{Cuda, DriverError, Stream};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::rc::Rc;

/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: i32 = 2;

/// Memory of the device, freed when dropped.
#[derive(Debug)]
pub struct Buffer {
    cuda: Rc<Cuda>,
    address: u64,
    bytes: u64,
}

impl Buffer {
    /// Takes memory.
    pub fn new(cuda: &Rc<Cuda>, bytes: u64) -> Result<Self, DriverError> {
        let mut address = 0;
        // SAFETY: the out-pointer is to a live local.
        let code = unsafe { (cuda.api.alloc)(&raw mut address, bytes as usize) };
        if code == OUT_OF_MEMORY {
            return Err(DriverError::Memory { mib: bytes >> 20 });
        }
        cuda.check("cuMemAlloc", code)?;
        Ok(Self { cuda: Rc::clone(cuda), address, bytes })
    }

    /// Address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills the buffer from the host.
    pub fn write(&self, data: &[u64]) -> Result<(), DriverError> {
        let bytes = std::mem::size_of_val(data);
        if bytes as u64 > self.bytes {
            return Err(DriverError::Misuse("copy past the end of a buffer"));
        }
        // SAFETY: both sides are that long.
        let code = unsafe { (self.cuda.api.to_device)(self.address, data.as_ptr().cast(), bytes) };
        self.cuda.check("cuMemcpyHtoD", code)
    }

    /// Reads the start of the buffer.
    pub fn read(&self, words: usize) -> Result<Vec<u64>, DriverError> {
        let mut data = vec![0u64; words];
        let bytes = std::mem::size_of_val(data.as_slice());
        if bytes as u64 > self.bytes {
            return Err(DriverError::Misuse("copy past the end of a buffer"));
        }
        // SAFETY: both sides are that long.
        let code = unsafe { (self.cuda.api.to_host)(data.as_mut_ptr().cast(), self.address, bytes) };
        self.cuda.check("cuMemcpyDtoH", code)?;
        Ok(data)
    }

    /// Queues a copy of all of `from` to the start of this buffer.
    pub fn copy_from(&self, from: &Self, stream: &Stream) -> Result<(), DriverError> {
        if from.bytes > self.bytes {
            return Err(DriverError::Misuse("copy past the end of a buffer"));
        }
        // SAFETY: both buffers are at least that long and outlive the work: callers wait before they drop.
        let code = unsafe {
            (self.cuda.api.copy_async)(self.address, from.address, from.bytes as usize, stream.raw())
        };
        self.cuda.check("cuMemcpyDtoDAsync", code)
    }

    /// Queues a fill with one value.
    pub fn set(&self, value: u32, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: the buffer has that many whole words.
        let code = unsafe {
            (self.cuda.api.set_async)(self.address, value, (self.bytes / 4) as usize, stream.raw())
        };
        self.cuda.check("cuMemsetD32Async", code)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: we own the memory; freeing waits for work that uses it.
        unsafe { (self.cuda.api.free)(self.address) };
    }
}

/// Page-locked memory of the host.
#[derive(Debug)]
pub struct Pinned {
    cuda: Rc<Cuda>,
    address: *mut c_void,
    bytes: u64,
}

impl Pinned {
    /// Takes memory.
    pub fn new(cuda: &Rc<Cuda>, bytes: u64) -> Result<Self, DriverError> {
        let mut address = null_mut();
        // SAFETY: the out-pointer is to a live local.
        let code = unsafe { (cuda.api.host_alloc)(&raw mut address, bytes as usize, 0) };
        cuda.check("cuMemHostAlloc", code)?;
        let pinned = Self { cuda: Rc::clone(cuda), address, bytes };
        // SAFETY: the memory is ours and that long. Touching it all makes the copies below find it in place.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0x5a, bytes as usize) };
        Ok(pinned)
    }

    /// Queues a copy to the device.
    pub fn send(&self, to: &Buffer, stream: &Stream) -> Result<(), DriverError> {
        if self.bytes > to.bytes {
            return Err(DriverError::Misuse("copy past the end of a buffer"));
        }
        // SAFETY: both sides are that long and outlive the work: callers wait before they drop.
        let code = unsafe {
            (self.cuda.api.to_device_async)(to.address, self.address, self.bytes as usize, stream.raw())
        };
        self.cuda.check("cuMemcpyHtoDAsync", code)
    }

    /// Queues a copy from the device.
    pub fn receive(&self, from: &Buffer, stream: &Stream) -> Result<(), DriverError> {
        if self.bytes > from.bytes {
            return Err(DriverError::Misuse("copy past the end of a buffer"));
        }
        // SAFETY: both sides are that long and outlive the work: callers wait before they drop.
        let code = unsafe {
            (self.cuda.api.to_host_async)(self.address, from.address, self.bytes as usize, stream.raw())
        };
        self.cuda.check("cuMemcpyDtoHAsync", code)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: we own the memory, and callers wait for copies before they drop it.
        unsafe { (self.cuda.api.host_free)(self.address) };
    }
}
