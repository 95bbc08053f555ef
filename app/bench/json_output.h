#pragma once
#include <optional>
#include <string>

#include "io/file.h"
#include "io/json.h"

namespace tokenmill::app {

/// --output-json of a benchmark: opened before anything is measured, so that a name that cannot be written costs no
/// run. A regular file is replaced as a whole at the end; what is none (/dev/stdout, a pipe) is written in place.
class JsonOutput {
 public:
  /// path: empty for none. Throws Error(kIo) naming the option when it cannot be written.
  explicit JsonOutput(const std::string& path);
  /// Once. Throws Error(kIo).
  void write(const io::JsonValue& value);

 private:
  std::optional<io::AtomicFile> replaced_;
  std::optional<io::File> in_place_;
};

}  // namespace tokenmill::app
