#pragma once
#include <string>

#include "engine/models/weight_catalog.h"

namespace tokenmill::app {

/// Tells checkpoints apart that differ in any tensor, also by a little in all places, without reading them whole: a
/// hash over the digests of the files and 16 KiB from the middle of each tensor. Names of files do not count. Throws
/// Error(kIo).
std::string checkpoint_digest(const WeightCatalog& weights);

}  // namespace tokenmill::app
