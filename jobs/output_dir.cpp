#include "jobs/output_dir.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "io/file.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResults[] = {"output.jsonl", "run.yaml", "row_metrics.jsonl", "journal"};

/// Temporaries of io::AtomicFile: "output.jsonl.tmp.1234".
bool is_temporary(const std::string& name) {
  return std::any_of(std::begin(kResults), std::end(kResults),
                     [&](const char* result) { return name.rfind(std::string(result) + ".tmp.", 0) == 0; });
}

/// path is below, or is, one of the results.
bool lies_in(const fs::path& directory, const std::string& result, const std::string& path) {
  std::error_code error;
  const fs::path relative =
      fs::weakly_canonical(path, error).lexically_relative(fs::weakly_canonical(directory, error));
  return !relative.empty() && *relative.begin() == result;
}

void make_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw Error(ErrorKind::kIo, "output directory {} cannot be made: {}", path,
                error ? error.message() : "something else has its name");
}

void create(const OutputDir& directory, bool restart, const std::vector<std::string>& inputs) {
  const std::vector<std::string> results = directory.results();
  if (!results.empty() && !restart)
    throw Error(ErrorKind::kConfig,
                "output directory {} holds results of an earlier run ({}); give --restart to replace "
                "them, or another --output",
                directory.path(), fmt::join(results, ", "));
  for (const std::string& result : results)
    for (const std::string& input : inputs)
      if (lies_in(directory.path(), result, input))
        throw Error(ErrorKind::kConfig,
                    "input {} is among the results in {} that --restart would remove; move it, or "
                    "choose another --output",
                    input, directory.path());
  for (const std::string& result : results) {
    std::error_code error;
    fs::remove_all(fs::path(directory.path()) / result, error);
    if (error) throw Error(ErrorKind::kIo, "{}/{} cannot be removed: {}", directory.path(), result, error.message());
  }
  if (!results.empty()) log::debug("removed {} from {}", fmt::join(results, ", "), directory.path());
  for (const std::string& path : {directory.parts_dir(), directory.ledgers_dir(), directory.scratch_dir()})
    make_directory(path);
}

/// Every rank must see what rank 0 has just written.
void check_shared(const OutputDir& directory, double visible_within_s, const parallel::Comm& world) {
  std::string marker = fmt::format("{}/visible-{}-{}", directory.journal(), ::getpid(),
                                   std::chrono::system_clock::now().time_since_epoch().count());
  parallel::run_on_root(world, [&] { io::File::create_new(marker).close(); });
  parallel::broadcast_bytes(world, marker, 0);
  parallel::agree_on(world, [&] {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::duration<double>(visible_within_s);
    while (::access(marker.c_str(), F_OK) != 0) {
      if (std::chrono::steady_clock::now() > give_up)
        throw Error(ErrorKind::kIo,
                    "output directory {} is not the one that rank 0 sees ({} is missing here); put it on a "
                    "file system that all nodes share",
                    directory.path(), marker);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  std::error_code ignored;
  if (world.rank() == 0) fs::remove(marker, ignored);
}

}  // namespace

std::string OutputDir::part_path(int part) const { return fmt::format("{}/{:05d}.jsonl", parts_dir(), part); }
std::string OutputDir::ledger_path(int part) const { return fmt::format("{}/{:05d}.ledger", ledgers_dir(), part); }

std::vector<std::string> OutputDir::results() const {
  std::vector<std::string> found;
  std::error_code error;
  for (const char* name : kResults)
    if (fs::exists(fs::symlink_status(fs::path(path_) / name, error))) found.emplace_back(name);
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    if (is_temporary(entry->path().filename().string())) found.push_back(entry->path().filename().string());
  return found;
}

void prepare_output(const OutputDir& directory, bool restart, const std::vector<std::string>& inputs,
                    double visible_within_s, const parallel::Comm& world) {
  parallel::run_on_root(world, [&] { create(directory, restart, inputs); });
  check_shared(directory, visible_within_s, world);
}

}  // namespace tokenmill::jobs
