//! From operators to time: closed forms from `kernels`, corrected by what was learned, bounded by physics.

pub mod choice;
pub mod conv_table;
pub mod correction;
pub mod fitted;
pub mod iteration;
pub mod model;
pub mod operator;
pub mod trees;

pub use correction::Correction;
pub use iteration::{HostModel, IterationPrediction, StepPrediction};
pub use model::{KernelForm, TimeModel};
pub use operator::{Bound, OpPrediction};
