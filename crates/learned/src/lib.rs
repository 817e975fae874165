//! What was learned from measurements, evaluated: boosted trees and choosers. No physics, no GPUs, no operators.

pub mod choice;
pub mod family;
pub mod recall;
pub mod trees;
