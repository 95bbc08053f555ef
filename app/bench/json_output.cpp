#include "app/bench/json_output.h"

#include <filesystem>

#include "app/report_files.h"
#include "kernels/core/error.h"

namespace tokenmill::app {

JsonOutput::JsonOutput(const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  try {
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
      in_place_ = io::File::create_in_place(path);
    else
      replaced_.emplace(path);
  } catch (const Error& error) {
    throw unwritable("--output-json", path, error);
  }
}

void JsonOutput::write(const io::JsonValue& value) {
  const std::string text = io::to_json(value) + "\n";
  if (in_place_) {
    in_place_->write_all(text);
    in_place_->close();
  }
  if (replaced_) {
    replaced_->write(text);
    replaced_->commit();
  }
}

}  // namespace tokenmill::app
