#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace tokenmill {

/// A step's result on its way from the last pipeline stage to the leader: little-endian, versioned (first byte). Times
/// stay behind: they are the rank's own. deserialize throws Error(kInternal) on a version it does not know, on
/// truncation and on counts that exceed the bytes.
std::vector<std::byte> serialize(const StepResult& result);
StepResult deserialize_step_result(std::span<const std::byte> bytes);

}  // namespace tokenmill
