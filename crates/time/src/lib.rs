//! From operators to time: closed forms from `kernels`, corrected by what was learned, bounded by physics.

pub mod conv_table;
pub mod correction;
pub mod fitted;
pub mod model;
pub mod operator;

pub use correction::Correction;
pub use model::{KernelForm, TimeModel};
pub use operator::{Bound, OpPrediction};
