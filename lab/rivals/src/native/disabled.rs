//! Without the feature `native` there are no native pools.

use crate::catalogue::Rival;

pub(crate) fn catalogue() -> Vec<Rival> {
    Vec::new()
}
