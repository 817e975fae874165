//! Constants of the convolution families, looked up by key with coarser keys to fall back on.

use super::fitted::Fitted;
use crate::dtype::Dtype;
use crate::kernels::conv::{ConvConstants, ConvFamily, Task, constants_key};
use crate::kernels::conv_features::ConvTable;
use crate::ops::Gemm;
use std::collections::HashMap;

/// Constants by key.
#[derive(Debug, Clone, Default)]
pub struct ConvForms {
    table: HashMap<String, Vec<f64>>,
}

/// The key itself, then each shorter one: `a/b/c`, `a/b`, `a`.
pub fn coarser(key: &str) -> impl Iterator<Item = &str> {
    let mut at = Some(key);
    std::iter::from_fn(move || {
        let now = at?;
        at = now.rfind('/').map(|i| &now[..i]);
        Some(now)
    })
}

impl ConvForms {
    /// From all fitted forms.
    pub fn new(fitted: &Fitted) -> Self {
        Self::from_forms(fitted.forms())
    }

    /// From forms by key; keys of other operators are left out.
    pub fn from_forms<'a>(forms: impl Iterator<Item = (&'a str, &'a [f64])>) -> Self {
        let table =
            forms.filter(|(k, _)| k.starts_with("conv/")).map(|(k, v)| (k.to_string(), v.to_vec())).collect();
        Self { table }
    }

    fn find(&self, task: &Task, family: ConvFamily) -> Option<&Vec<f64>> {
        let key = constants_key(task, family);
        coarser(&key).find_map(|k| self.table.get(k))
    }
}

/// Constants together with the product model on one GPU: what the families of a convolution need.
pub struct ConvContext<'a> {
    /// Constants by key.
    pub forms: &'a ConvForms,
    /// Seconds of a plain product.
    pub product: &'a dyn Fn(&Gemm, Dtype) -> f64,
}

impl std::fmt::Debug for ConvContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConvContext").finish_non_exhaustive()
    }
}

impl ConvTable for ConvContext<'_> {
    fn product(&self, task: &Task, family: ConvFamily) -> ConvConstants {
        self.forms
            .find(task, family)
            .and_then(|v| ConvConstants::from_slice(v))
            .unwrap_or(ConvConstants::START)
    }

    fn plain_product(&self, gemm: &Gemm, dtype: Dtype) -> f64 {
        (self.product)(gemm, dtype)
    }

    fn depthwise(&self, task: &Task, family: ConvFamily) -> (f64, f64) {
        match self.forms.find(task, family).map(Vec::as_slice) {
            Some([t0, rate, ..]) => (*t0, *rate),
            _ => (4e-6, 0.3),
        }
    }
}
