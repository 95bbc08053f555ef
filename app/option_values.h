#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace tokenmill::app {

/// One option as the user wrote it, in a job file or on the command line.
struct Setting {
  std::string name;                 ///< long form without dashes in front: "max-num-seqs"
  std::vector<std::string> values;  ///< exactly one unless the option takes a list
  std::string where;                ///< starts error messages: "--max-num-seqs" or "job.yaml:12: max-num-seqs"
};

/// The readers below throw Error(kConfig) "WHERE is FOUND; it must be ...". Numbers are decimal without leading zeros,
/// so that nothing depends on how YAML or a shell would read 010, 1_000 or 0x10.
int64_t read_integer(const Setting& setting, int64_t low, int64_t high = std::numeric_limits<int64_t>::max());
/// A whole number of 64 bits; -1 is "none" as in rows, and 0.
uint64_t read_seed(const Setting& setting);
/// Finite; low <= value <= high.
double read_number(const Setting& setting, double low, double high);
double read_number(const Setting& setting);  ///< finite
/// true or false.
bool read_bool(const Setting& setting);
/// A size: a number with an optional K, M, G or T (1024-based; KiB, MB and the like are accepted as the same).
int64_t read_bytes(const Setting& setting, int64_t low);
/// One of the words.
std::string read_word(const Setting& setting, const std::vector<std::string>& allowed);
const std::string& read_text(const Setting& setting);  ///< not empty

/// Throws when a member is named twice: of NAME=VALUE items none may be lost.
void check_named_once(const Setting& setting, const std::vector<io::JsonValue::Member>& members);
/// NAME=VALUE items; a value that is no JSON is text.
io::JsonValue read_variables(const Setting& setting);

/// The closest of `words` to a mistyped one, or empty when nothing is near.
std::string closest(std::string_view word, const std::vector<std::string>& words);

}  // namespace tokenmill::app
