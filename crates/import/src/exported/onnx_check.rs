//! ONNX nodes that no library could run are refused, as they are in every other kind of file.

use super::ExportedError;
use super::onnx::{Attributes, Reader};
use super::onnx_file::Node;

impl Reader<'_> {
    /// Strides, windows, dilations and pads of a sliding window, and groups that divide its channels.
    pub(super) fn check_node(
        &self,
        node: &Node,
        inputs: &[Option<usize>],
        a: &Attributes<'_>,
    ) -> Result<(), ExportedError> {
        let op = node.op_type.as_str();
        let convolution = matches!(op, "Conv" | "ConvTranspose");
        let what = if convolution || matches!(op, "MaxPool" | "AveragePool" | "LpPool") {
            window(a)
                .or_else(|| if convolution { self.groups(op, inputs, a) } else { None })
                .or_else(|| if op == "ConvTranspose" { None } else { self.room(inputs, a) })
        } else if op == "GroupNormalization" {
            self.norm_groups(inputs, a)
        } else {
            None
        };
        match what {
            None => Ok(()),
            Some(what) => {
                let named = Some(&node.name).filter(|n| !n.is_empty()).or(node.outputs.first());
                let node = named.cloned().unwrap_or_default();
                Err(ExportedError::Impossible { file: self.path.to_owned(), op: op.to_owned(), node, what })
            }
        }
    }

    fn size(&self, inputs: &[Option<usize>], input: usize, axis: usize) -> Option<u64> {
        self.values[(*inputs.get(input)?)?].shape.get(axis).copied()
    }

    /// Of a convolution with weights of (out, in / groups, ..), transposed (in, out / groups, ..).
    fn groups(&self, op: &str, inputs: &[Option<usize>], a: &Attributes<'_>) -> Option<String> {
        let groups = a.whole("group").unwrap_or(1);
        let Some(groups) = u64::try_from(groups).ok().filter(|&g| g > 0) else {
            return Some(format!("it has {groups} groups; there must be at least one"));
        };
        let (channels, weight) = (self.size(inputs, 0, 1)?, self.size(inputs, 1, 0)?);
        if channels % groups != 0 || weight % groups != 0 {
            return Some(format!(
                "its {groups} groups do not divide its channels ({channels} in, weight {weight})"
            ));
        }
        let wanted = if op == "Conv" { self.size(inputs, 1, 1)?.saturating_mul(groups) } else { weight };
        (wanted != channels)
            .then(|| format!("its weight is for {wanted} input channels, and its input has {channels}"))
    }

    /// A window that is larger than what it slides over.
    fn room(&self, inputs: &[Option<usize>], a: &Attributes<'_>) -> Option<String> {
        if a.text("auto_pad").is_some_and(|p| p.starts_with("SAME")) {
            return None;
        }
        let x = &self.values[(*inputs.first()?)?].shape;
        let space = x.len().checked_sub(2)?;
        for i in 0..space {
            let window = match a.wholes("kernel_shape") {
                Some(kernel) => *kernel.get(i)? as u64,
                None => self.size(inputs, 1, i + 2)?,
            };
            let at = |name: &str, i: usize, default: u64| {
                a.wholes(name).and_then(|v| v.get(i).copied()).map_or(default, |n| n as u64)
            };
            let reach = at("dilations", i, 1).saturating_mul(window.saturating_sub(1)).saturating_add(1);
            let padded = x[i + 2].saturating_add(at("pads", i, 0)).saturating_add(at("pads", i + space, 0));
            if reach > padded {
                return Some(format!("its window reaches over {reach} of {padded} elements"));
            }
        }
        None
    }

    fn norm_groups(&self, inputs: &[Option<usize>], a: &Attributes<'_>) -> Option<String> {
        let groups = a.whole("num_groups").unwrap_or(1);
        let channels = self.size(inputs, 0, 1)?;
        let divides = u64::try_from(groups).is_ok_and(|g| g > 0 && channels % g == 0);
        (!divides).then(|| format!("{groups} groups do not divide {channels} channels"))
    }
}

fn window(a: &Attributes<'_>) -> Option<String> {
    for (name, least) in
        [("strides", 1), ("dilations", 1), ("kernel_shape", 1), ("pads", 0), ("output_padding", 0)]
    {
        if let Some(bad) = a.wholes(name).and_then(|v| v.into_iter().find(|&n| n < least)) {
            return Some(format!("`{name}` has {bad}; it must be at least {least}"));
        }
    }
    None
}
