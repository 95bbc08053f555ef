#include "app/merge_output.h"

#include <filesystem>

#include "io/file.h"
#include "io/record_reader.h"
#include "jobs/journal/identity.h"
#include "jobs/output_dir.h"
#include "kernels/core/error.h"

namespace tokenmill::app {

void check_merge_output(const std::vector<std::string>& directories, const std::string& output) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kConfig, "--output {} {}; name another file", output, what);
  };
  std::error_code error;
  for (const std::string& directory : directories) {
    const jobs::OutputDir place(directory);
    if (place.is_result(output)) refuse("is a result of " + directory + ", which a rerun keeps up");
    if (!std::filesystem::exists(place.identity_path(), error)) continue;
    for (const std::string& input : jobs::input_paths(jobs::Identity::read(place.identity_path())))
      if (std::filesystem::equivalent(io::files_of({input}).front(), output, error))
        refuse("is an input of " + directory + " and would be overwritten");
  }
  try {
    io::check_replaceable(output);
  } catch (const Error& reason) {
    throw Error(ErrorKind::kConfig, "--output {}", reason.what());
  }
}

}  // namespace tokenmill::app
