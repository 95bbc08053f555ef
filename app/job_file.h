#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "app/option_values.h"

namespace tokenmill::app {

/// Reads a YAML job file: one mapping of option names (dashes or underscores) to a value or a list, and under
/// `sampling:` the sampling options. Values are taken as written (a quoted "010" and a plain 010 are the same text);
/// checking them is the option table's work. Settings carry "FILE:LINE: name" as their place.
/// Throws Error(kConfig) with file and line: not YAML, not a mapping, a repeated key, a value that is neither text nor
/// a list of texts; Error(kIo) when the file cannot be read.
std::vector<Setting> read_job_file(const std::string& path);

/// The same over text, for tests; path is used in messages only.
std::vector<Setting> parse_job_file(std::string_view text, const std::string& path);

}  // namespace tokenmill::app
