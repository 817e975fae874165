//! What joins two GPUs: NVLink, Infinity Fabric or PCI Express, by generation.

use preflop_core::Gpu;
use preflop_core::units::BytesPerSecond;
use serde::Serialize;

/// A kind of link; it picks the fitted lines of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum LinkKind {
    Nvlink1,
    Nvlink2,
    Nvlink3,
    Nvlink4,
    Nvlink5,
    Nvlink6,
    Xgmi,
    Pcie3,
    Pcie4,
    Pcie5,
    Pcie6,
}

impl LinkKind {
    /// All, in the order of the documentation.
    pub const ALL: [Self; 11] = [
        Self::Nvlink1,
        Self::Nvlink2,
        Self::Nvlink3,
        Self::Nvlink4,
        Self::Nvlink5,
        Self::Nvlink6,
        Self::Xgmi,
        Self::Pcie3,
        Self::Pcie4,
        Self::Pcie5,
        Self::Pcie6,
    ];

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvlink1 => "nvlink1",
            Self::Nvlink2 => "nvlink2",
            Self::Nvlink3 => "nvlink3",
            Self::Nvlink4 => "nvlink4",
            Self::Nvlink5 => "nvlink5",
            Self::Nvlink6 => "nvlink6",
            Self::Xgmi => "xgmi",
            Self::Pcie3 => "pcie3",
            Self::Pcie4 => "pcie4",
            Self::Pcie5 => "pcie5",
            Self::Pcie6 => "pcie6",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Does the host's bus do it?
    pub fn is_pcie(self) -> bool {
        matches!(self, Self::Pcie3 | Self::Pcie4 | Self::Pcie5 | Self::Pcie6)
    }

    /// Can switches of this generation add numbers (NVLS)? NVLink 4 and newer.
    pub fn reduces_in_switch(self) -> bool {
        matches!(self, Self::Nvlink4 | Self::Nvlink5 | Self::Nvlink6)
    }
}

/// The link of one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Generation.
    pub kind: LinkKind,
    /// All links of the GPU together, one direction.
    pub rate: BytesPerSecond,
}

impl Link {
    /// The link that joins GPUs of this kind when a board or switch connects them; the host interface otherwise.
    pub fn of(gpu: &Gpu) -> Self {
        let named = gpu
            .link
            .as_ref()
            .and_then(|(kind, rate)| LinkKind::from_name(kind).map(|kind| Self { kind, rate: *rate }));
        named.unwrap_or_else(|| Self::host(gpu))
    }

    /// The host interface of a GPU.
    pub fn host(gpu: &Gpu) -> Self {
        // One direction of 16 lanes: 15.8, 31.5, 63, 126 GB/s.
        let kind = match gpu.host.gbs() {
            g if g < 20.0 => LinkKind::Pcie3,
            g if g < 45.0 => LinkKind::Pcie4,
            g if g < 90.0 => LinkKind::Pcie5,
            _ => LinkKind::Pcie6,
        };
        Self { kind, rate: gpu.host }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    #[test]
    fn a_board_has_its_link_and_a_card_the_bus() {
        let a100 = Link::of(&catalog::find("a100-sxm-80gb").unwrap());
        assert_eq!((a100.kind, a100.rate.gbs()), (LinkKind::Nvlink3, 300.0));
        assert_eq!(Link::of(&catalog::find("l40s").unwrap()).kind, LinkKind::Pcie4);
        for kind in LinkKind::ALL {
            assert_eq!(LinkKind::from_name(kind.name()), Some(kind));
        }
    }
}
