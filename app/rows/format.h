#pragma once
#include <span>
#include <string>

#include "engine/request.h"

namespace tokenmill::rows {

/// Appends "[1,2,3]".
void append_ids(std::string& out, std::span<const int32_t> ids);
/// Appends the stop string, the stop token id, or null.
void append_stop_reason(std::string& out, const StopReason& reason);
/// Appends the shortest text of a number that reads back as the same one, or null for one JSON cannot hold.
void append_finite(std::string& out, double value);
void append_finite(std::string& out, float value);

}  // namespace tokenmill::rows
