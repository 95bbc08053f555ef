#include "app/report_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "app/iteration_log.h"
#include "app/options.h"
#include "io/file.h"
#include "io/record_reader.h"
#include "jobs/output_dir.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

namespace fs = std::filesystem;

struct ReportFile {
  const char* flag;
  std::string path;
  bool replaced_whole;  // always renamed into place: a device of that name would be lost
};

bool is_job(const std::string& command) { return command == "run" || command == "validate"; }

std::vector<ReportFile> report_files(const RunOptions& options, const std::string& command, int num_replicas) {
  std::vector<ReportFile> files;
  if (!is_job(command) && !options.bench.output_json.empty())
    files.push_back({"--output-json", options.bench.output_json, false});  // JsonOutput writes devices in place
  if (is_job(command) && !options.metrics_file.empty()) files.push_back({"--metrics-file", options.metrics_file, true});
  for (int replica = 0; replica < num_replicas && !options.iteration_log.empty(); ++replica)
    files.push_back({"--iteration-log", iteration_log_path(options.iteration_log, replica, num_replicas), false});
  return files;
}

/// Symbolic links of the directory are followed, and of the file itself when it exists.
fs::path real_path(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path(path) : real;
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return real_path(a) == real_path(b) || fs::equivalent(a, b, error);  // the latter: hard links
}

/// path is file, or lies in it when that is a directory (links of the files there may lead elsewhere).
bool is_or_lies_in(const std::string& path, const std::string& file) {
  std::error_code error;
  if (!fs::is_directory(file, error)) return is_same_file(path, file);
  return real_path(fs::path(path).parent_path().string()) == real_path(file);
}

void check_not_read(const ReportFile& file, const RunOptions& options) {
  std::vector<std::string> read = files_in_use(options);
  const std::vector<std::string> inputs = io::files_of(options.input);
  read.insert(read.end(), inputs.begin(), inputs.end());
  for (const std::string& path : read)
    if (is_or_lies_in(file.path, path))
      throw Error(ErrorKind::kConfig, "{} {} would overwrite what the run reads ({}); name another file", file.flag,
                  file.path, path);
}

/// The directory that holds path, which a run makes before it writes there.
bool lies_in_new_output(const std::string& path, const std::string& output) {
  std::error_code error;
  const fs::path directory = fs::absolute(path, error).parent_path();
  return !output.empty() && !fs::exists(directory, error) && real_path(directory.string()) == real_path(output);
}

void try_file(const ReportFile& file) {
  std::error_code error;
  if (file.replaced_whole || !fs::exists(fs::symlink_status(file.path, error))) {
    const io::AtomicFile temporary(file.path);
  } else if (fs::is_regular_file(file.path, error)) {
    io::File::open_append(file.path);
  } else if (::access(file.path.c_str(), W_OK) != 0) {  // opening a pipe would wait for its reader
    throw Error(ErrorKind::kIo, "{}", std::strerror(errno));
  }
}

}  // namespace

std::vector<std::string> files_in_use(const RunOptions& options) {
  std::vector<std::string> paths = {options.model, options.job_file, options.chat_template};
  std::erase(paths, "");
  return paths;
}

void check_report_files(const RunOptions& options, const std::string& command, int num_replicas) {
  const std::vector<ReportFile> files = report_files(options, command, num_replicas);
  for (size_t i = 0; i < files.size(); ++i) {
    const ReportFile& file = files[i];
    check_not_read(file, options);
    std::error_code error;
    if (fs::is_directory(file.path, error))
      throw Error(ErrorKind::kConfig, "{} {} is a directory; it must be a file", file.flag, file.path);
    if (is_job(command) && jobs::OutputDir(options.output).is_result(file.path))
      throw Error(ErrorKind::kConfig, "{} {} is the name of a result of this run; name another file", file.flag,
                  file.path);
    for (size_t other = 0; other < i; ++other)
      if (is_same_file(file.path, files[other].path))
        throw Error(ErrorKind::kConfig, "{} and {} both name {}; give each a file of its own", files[other].flag,
                    file.flag, file.path);
    try {
      if (file.replaced_whole) io::check_replaceable(file.path);
    } catch (const Error& reason) {
      throw Error(ErrorKind::kConfig, "{} {}", file.flag, reason.what());
    }
  }
}

void try_report_files(const RunOptions& options, const std::string& command, int num_replicas) {
  for (const ReportFile& file : report_files(options, command, num_replicas)) {
    if (is_job(command) && lies_in_new_output(file.path, options.output)) continue;
    try {
      try_file(file);
    } catch (const Error& reason) {
      throw unwritable(file.flag, file.path, reason);
    }
  }
}

Error unwritable(const std::string& flag, const std::string& path, const Error& reason) {
  return {ErrorKind::kIo, "{} {} cannot be written: {}; name a file in a directory that is there and can be written to",
          flag, path, reason.what()};
}

}  // namespace tokenmill::app
