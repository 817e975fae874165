//! Work for the device: kernels, streams, events, recorded graphs.

use super::DriverError;
use super::cuda::{Cuda, GraphApi, Handle};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

/// Compiled kernels.
#[derive(Debug)]
pub struct Module {
    pub(super) cuda: Rc<Cuda>,
    pub(super) module: Handle,
}

impl Module {
    /// A kernel by name. `parameters` is how many it takes.
    pub fn function(&self, name: &str, parameters: usize) -> Result<Function, DriverError> {
        let text = CString::new(name).map_err(|_| DriverError::Misuse("kernel name with a zero byte"))?;
        let mut function = null_mut();
        // SAFETY: the module is loaded, and modules are never unloaded.
        let code = unsafe { (self.cuda.api.module_function)(&raw mut function, self.module, text.as_ptr()) };
        self.cuda.check("cuModuleGetFunction", code)?;
        Ok(Function { function, parameters })
    }
}

/// A kernel.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    function: Handle,
    parameters: usize,
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum Arg {
    /// Device address or 64-bit number.
    U64(u64),
    /// 32-bit number.
    U32(u32),
    /// 32-bit float.
    F32(f32),
}

/// A queue of work.
#[derive(Debug)]
pub struct Stream {
    pub(super) cuda: Rc<Cuda>,
    pub(super) stream: Handle,
}

impl Stream {
    /// The driver's handle, for libraries.
    pub(super) fn raw(&self) -> Handle {
        self.stream
    }

    /// The driver.
    pub fn cuda(&self) -> &Rc<Cuda> {
        &self.cuda
    }

    /// Starts a kernel with `grid` blocks of `block` threads.
    pub fn launch(&self, f: Function, grid: u32, block: u32, args: &[Arg]) -> Result<(), DriverError> {
        if args.len() != f.parameters {
            return Err(DriverError::Misuse("wrong number of kernel arguments"));
        }
        // Each argument in eight bytes of its own; shorter ones take the first four.
        let mut values: Vec<[u8; 8]> = args
            .iter()
            .map(|arg| {
                let mut bytes = [0u8; 8];
                match arg {
                    Arg::U64(v) => bytes = v.to_ne_bytes(),
                    Arg::U32(v) => bytes[..4].copy_from_slice(&v.to_ne_bytes()),
                    Arg::F32(v) => bytes[..4].copy_from_slice(&v.to_ne_bytes()),
                }
                bytes
            })
            .collect();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
        // SAFETY: the kernel reads as many arguments as it has parameters, each at most eight bytes long, before
        // the call returns. What it does on the device cannot touch memory of this process.
        let code = unsafe {
            (self.cuda.api.launch)(
                f.function,
                grid,
                1,
                1,
                block,
                1,
                1,
                0,
                self.stream,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        self.cuda.check("cuLaunchKernel", code)
    }

    /// Waits until all work is done.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream is alive.
        self.cuda.check("cuStreamSynchronize", unsafe { (self.cuda.api.stream_synchronize)(self.stream) })
    }

    /// Marks the present end of the queue.
    pub fn record(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: event and stream are alive.
        let code = unsafe { (self.cuda.api.event_record)(event.event, self.stream) };
        self.cuda.check("cuEventRecord", code)
    }

    /// Records what `work` queues as a graph instead of running it. `None` where the driver is too old.
    pub fn capture(
        &self,
        work: impl FnOnce(&Self) -> Result<(), DriverError>,
    ) -> Result<Option<Graph>, DriverError> {
        let Some(api) = self.cuda.graphs else { return Ok(None) };
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: the stream is alive; out-pointers are to live locals. 1: thread-local capture.
        unsafe {
            self.cuda.check("cuStreamBeginCapture", (api.begin)(self.stream, 1))?;
            let worked = work(self);
            let code = (api.end)(self.stream, &raw mut graph);
            worked?;
            self.cuda.check("cuStreamEndCapture", code)?;
            self.cuda.check("cuGraphInstantiate", (api.instantiate)(&raw mut executable, graph, 0))?;
        }
        Ok(Some(Graph { api, executable }))
    }

    /// Starts a graph.
    pub fn launch_graph(&self, graph: &Graph) -> Result<(), DriverError> {
        // SAFETY: graph and stream are alive; graphs are never destroyed.
        self.cuda.check("cuGraphLaunch", unsafe { (graph.api.launch)(graph.executable, self.stream) })
    }
}

/// A recorded graph.
#[derive(Clone, Copy)]
pub struct Graph {
    api: GraphApi,
    executable: Handle,
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    pub(super) cuda: Rc<Cuda>,
    pub(super) event: Handle,
}

impl Event {
    /// Milliseconds from `earlier` to this event. Waits for this one.
    pub fn since(&self, earlier: &Self) -> Result<f64, DriverError> {
        let mut ms = 0.0f32;
        // SAFETY: both events are alive; the out-pointer is to a live local.
        unsafe {
            self.cuda.check("cuEventSynchronize", (self.cuda.api.event_synchronize)(self.event))?;
            let code = (self.cuda.api.event_elapsed)(&raw mut ms, earlier.event, self.event);
            self.cuda.check("cuEventElapsedTime", code)?;
        }
        Ok(f64::from(ms))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: we own the event. A failure to free it changes nothing for us.
        unsafe { (self.cuda.api.event_destroy)(self.event) };
    }
}
