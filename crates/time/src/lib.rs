//! From operators to time: closed forms from `kernels`, corrected by what was learned, bounded by physics.

pub mod boards;
pub mod conv_table;
pub mod correction;
pub mod evidence;
pub mod fitted;
pub mod model;
pub mod operator;
pub mod stack;

pub use correction::Correction;
pub use evidence::{Evidence, Library, Nearness};
pub use model::{KernelForm, TimeModel, listed_class, listed_form};
pub use operator::{Bound, OpPrediction};
pub use stack::Stack;
