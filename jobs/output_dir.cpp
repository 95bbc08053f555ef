#include "jobs/output_dir.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>

#include "io/file.h"
#include "jobs/old_results.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kResults[] = {"output.jsonl", "output.h5", "run.yaml", "row_metrics.jsonl", "journal"};
constexpr int64_t kMaxOwnerBytes = 4096;
constexpr double kReplacing_s = 1;  // how long another run may take from removing a journal to naming itself

/// "output.jsonl.tmp.1234" of io::AtomicFile, "journal.tmp.0123456789abcdef" of a run that did not begin.
bool is_temporary(const std::string& name) {
  for (const std::string result : kResults) {
    const std::string prefix = result + ".tmp.";
    const char* digits = result == "journal" ? "0123456789abcdef" : "0123456789";
    if (name.starts_with(prefix) && name.size() > prefix.size() &&
        name.find_first_not_of(digits, prefix.size()) == std::string::npos)
      return true;
  }
  return false;
}

void make_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw Error(ErrorKind::kIo, "output directory {} cannot be made: {}", path,
                error ? error.message() : "something else has its name");
}

void write_new_file(const std::string& path, const std::string& text) {
  io::File file = io::File::create_new(path);
  file.write_all(text);
  file.close();
}

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// Who a journal belongs to: lines of a name and a value.
struct Owner {
  std::string host, pid, started, token;

  static std::optional<Owner> read(const std::string& journal) {
    std::istringstream text;
    try {
      text.str(io::read_file(journal + "/" + OutputDir::kOwnerName, kMaxOwnerBytes));
    } catch (const Error&) {
      return std::nullopt;
    }
    Owner owner;
    for (std::string name, value; text >> name >> value;) {
      if (name == "host") owner.host = value;
      if (name == "pid") owner.pid = value;
      if (name == "started") owner.started = value;
      if (name == "token") owner.token = value;
    }
    if (owner.token.empty()) return std::nullopt;  // being written
    return owner;
  }
  std::string text() const { return fmt::format("host {}\npid {}\nstarted {}\ntoken {}\n", host, pid, started, token); }
};

/// Waits a little for an owner that is just being written.
std::optional<Owner> read_owner(const std::string& journal, double within_s) {
  const auto give_up = Clock::now() + std::chrono::duration<double>(within_s);
  for (;;) {
    if (auto owner = Owner::read(journal)) return owner;
    if (Clock::now() > give_up) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

[[noreturn]] void throw_taken_over(const OutputDir& directory, const std::optional<Owner>& owner) {
  if (owner)
    throw Error(ErrorKind::kIo, "another run ({}, pid {}, started {}) took over {}; give each run its own --output",
                owner->host, owner->pid, owner->started, directory.path());
  throw Error(ErrorKind::kIo,
              "the journal in {} was removed while this run used it, by another run or by hand; give each run its own "
              "--output",
              directory.path());
}

void refuse(const OutputDir& directory, const std::vector<std::string>& results) {
  if (results.empty()) return;
  throw Error(ErrorKind::kConfig,
              "output directory {} holds results of an earlier run ({}); give --restart to replace "
              "them, or another --output",
              directory.path(), fmt::join(results, ", "));
}

}  // namespace

void check_output_free(const OutputDir& directory, bool restart) {
  if (!restart) refuse(directory, directory.results());
}

std::string OutputDir::part_path(int part) const { return fmt::format("{}/{:05d}.jsonl", parts_dir(), part); }
std::string OutputDir::ledger_path(int part) const { return fmt::format("{}/{:05d}.ledger", ledgers_dir(), part); }

void OutputDir::make() const { make_directory(path_); }

std::vector<std::string> OutputDir::results() const {
  std::vector<std::string> found;
  std::error_code error;
  for (const char* name : kResults)
    if (fs::exists(fs::symlink_status(fs::path(path_) / name, error))) found.emplace_back(name);
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    if (is_temporary(entry->path().filename().string())) found.push_back(entry->path().filename().string());
  return found;
}

bool OutputDir::is_result(const std::string& path) const {
  return std::any_of(std::begin(kResults), std::end(kResults),
                     [&](const char* name) { return lies_in(path_, name, path); });
}

OutputClaim::~OutputClaim() {
  if (!is_root_ || token_.empty()) return;
  std::error_code ignored;
  if (!published_) {
    fs::remove_all(staged_journal(), ignored);  // nobody else knows its name
    return;
  }
  const auto owner = Owner::read(directory_.journal());
  if (owner && owner->token == token_) remove_scratch(directory_.scratch_dir());
}

void OutputClaim::stage(const parallel::Comm& world) {
  std::string token;
  is_root_ = world.rank() == 0;
  parallel::run_on_root(world, [&] {
    check_results(false);
    token_ = random_token();
    make_journal();
  });
  token = token_;
  parallel::broadcast_bytes(world, token, 0);
  token_ = token;
  wait_until_visible(staged_journal(), world);
}

void OutputClaim::publish(const parallel::Comm& world) {
  parallel::run_on_root(world, [&] { replace(); });
  published_ = true;
  wait_until_visible(directory_.journal(), world);
}

void OutputClaim::check_still_ours() const {
  std::optional<Owner> owner = Owner::read(directory_.journal());
  if (!owner) owner = read_owner(directory_.journal(), kReplacing_s);
  if (!owner || owner->token != token_) throw_taken_over(directory_, owner);
}

/// before_removal: journals that other runs are preparing do not count then; the first to publish has the directory.
void OutputClaim::check_results(bool before_removal) const {
  std::vector<std::string> found = directory_.results();
  if (before_removal) std::erase_if(found, [](const std::string& name) { return name.starts_with("journal.tmp."); });
  if (!options_.restart) refuse(directory_, found);
  if (!options_.restart) return;
  check_not_results(directory_, options_.protected_paths);
  removable_results(directory_, token_.empty() ? "" : staged_journal());
}

void OutputClaim::make_journal() const {
  directory_.make();  // by itself, so that an error names what the user named
  make_directory(staged_journal());
  write_new_file(staged_journal() + "/" + OutputDir::kMarkerName, kJournalMarker);
  const Owner owner{.host = parallel::host_name(),
                    .pid = std::to_string(::getpid()),
                    .started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
                    .token = token_};
  write_new_file(staged_journal() + "/" + OutputDir::kOwnerName, owner.text());
  for (const char* name : {"/parts", "/ledger", "/scratch"}) make_directory(staged_journal() + name);
}

void OutputClaim::replace() const {
  if (!Owner::read(staged_journal())) throw_taken_over(directory_, read_owner(directory_.journal(), kReplacing_s));
  check_results(true);
  if (options_.restart) {
    const std::vector<std::string> old = removable_results(directory_, staged_journal());
    remove_paths(old);
    if (!old.empty())
      log::debug("removed {} files and directories of an earlier run from {}", old.size(), directory_.path());
  }
  std::error_code error;
  fs::rename(staged_journal(), directory_.journal(), error);
  if (!error) return;
  if (const auto owner = Owner::read(directory_.journal())) throw_taken_over(directory_, owner);
  throw Error(ErrorKind::kIo, "{} cannot be renamed to {}: {}", staged_journal(), directory_.journal(),
              error.message());
}

/// Every rank must see what rank 0 has just written.
void OutputClaim::wait_until_visible(const std::string& journal, const parallel::Comm& world) const {
  parallel::agree_on(world, [&] {
    const auto owner = read_owner(journal, options_.visible_within_s);
    if (owner && owner->token == token_) return;
    if (owner) throw_taken_over(directory_, owner);
    throw Error(ErrorKind::kIo,
                "output directory {} is not the one that rank 0 sees ({} is missing here); put it on a "
                "file system that all nodes share",
                directory_.path(), journal);
  });
}

}  // namespace tokenmill::jobs
