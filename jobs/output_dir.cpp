#include "jobs/output_dir.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <thread>

#include "io/file.h"
#include "jobs/journal/advice.h"
#include "jobs/journal/owner.h"
#include "jobs/old_results.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kResults[] = {"output.jsonl", "output.h5", "run.yaml", "row_metrics.jsonl", "journal"};
constexpr std::string_view kPartsPrefix = "output.parts.";
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

/// Durable before anything that relies on it is.
void write_new_file(const std::string& path, const std::string& text) {
  io::File file = io::File::create(path);
  file.write_all(text);
  file.sync();
  file.close();
}

void rename_path(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw Error(ErrorKind::kIo, "{} cannot be renamed to {}: {}", from, to, error.message());
}

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

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
    throw Error(ErrorKind::kIo, "another run ({}) took over {}; give each run its own --output", owner->describe(),
                directory.path());
  throw Error(ErrorKind::kIo,
              "the journal in {} was removed while this run used it, by another run or by hand; give each run its own "
              "--output",
              directory.path());
}

[[noreturn]] void refuse(const OutputDir& directory, const std::vector<std::string>& results, const std::string& why) {
  throw Error(ErrorKind::kConfig,
              "output directory {} holds results of an earlier run ({}) {}; give --restart to replace them, or another "
              "--output",
              directory.path(), fmt::join(results, ", "), why);
}

void compare(const OutputDir& directory, const OutputUse& use, const Identity& identity) {
  const std::string difference = identity.difference_from(Identity::read(directory.identity_path()));
  if (difference.empty()) return;
  if (!use.accept_change)
    throw Error(ErrorKind::kConfig,
                "output directory {} holds a job that began otherwise: {}; undo the change to continue it, give "
                "--accept-change to mix old results with new ones, --restart to begin anew, or another --output",
                directory.path(), difference);
}

}  // namespace

bool can_continue(const OutputDir& directory, const OutputUse& use, const Identity* identity,
                  const std::string& own_journal) {
  const std::vector<std::string> found = directory.results();
  if (use.restart) {
    check_not_results(directory, use.protected_paths);
    removable_results(directory, own_journal);
    return false;
  }
  if (found.empty()) return false;
  if (std::find(found.begin(), found.end(), "journal") == found.end()) refuse(directory, found, "without their journal");
  if (const std::string problem = journal_problem(directory); !problem.empty()) refuse(directory, found, problem);
  check_not_results(directory, use.protected_paths);
  for (const std::string& name : found)
    if (name != "journal" && !OutputDir::is_output_parts(name)) io::check_replaceable(directory.path() + "/" + name);
  if (identity != nullptr) compare(directory, use, *identity);
  return true;
}

PartPaths OutputDir::part(int64_t run, int64_t replica) const {
  return {.part = fmt::format("{}/{:05d}-{:05d}.jsonl", parts_dir(), run, replica),
          .ledger = fmt::format("{}/{:05d}-{:05d}.ledger", ledgers_dir(), run, replica),
          .run = run};
}

std::string OutputDir::running_rows(int64_t run, int64_t replica) const {
  return fmt::format("{}/{:05d}-{:05d}.rows", running_dir(), run, replica);
}

std::string OutputDir::death_note(int64_t run, int64_t replica, int rank) const {
  return fmt::format("{}/{:05d}-{:05d}.rank{}", running_dir(), run, replica, rank);
}

std::string OutputDir::output_parts_dir(int64_t run) const { return fmt::format("{}/{}{:05d}", path_, kPartsPrefix, run); }

bool OutputDir::is_output_parts(const std::string& name) {
  return name.starts_with(kPartsPrefix) && name.size() > kPartsPrefix.size() &&
         name.find_first_not_of("0123456789", kPartsPrefix.size()) == name.npos;
}

void OutputDir::make() const { make_directory(path_); }

std::vector<std::string> OutputDir::results() const {
  std::vector<std::string> found;
  std::error_code error;
  for (const char* name : kResults)
    if (fs::exists(fs::symlink_status(fs::path(path_) / name, error))) found.emplace_back(name);
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    if (is_output_parts(entry->path().filename().string())) found.push_back(entry->path().filename().string());
  return found;
}

std::vector<std::string> OutputDir::leftovers() const {
  std::vector<std::string> found;
  std::error_code error;
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

void OutputClaim::stage(const Identity& identity, const parallel::Comm& world) {
  std::string token;
  is_root_ = world.rank() == 0;
  parallel::run_on_root(world, [&] {
    can_continue(directory_, use_, &identity);
    token_ = random_token();
    predecessor_.wait_until_over(directory_, token_);
    identity_ = identity;
    make_journal(identity);
  });
  token = token_;
  parallel::broadcast_bytes(world, token, 0);
  token_ = token;
  wait_until_visible(staged_journal(), world);
}

void OutputClaim::publish(RowRange rows, const parallel::Comm& world) {
  parallel::run_on_root(world, [&] { put_in_place(rows); });
  published_ = true;
  run_ = parallel::gather_values(world, run_)[0];
  wait_until_visible(directory_.journal(), world);
}

void OutputClaim::check_still_ours() const {
  std::optional<Owner> owner = Owner::read(directory_.journal());
  if (!owner) owner = read_owner(directory_.journal(), kReplacing_s);
  if (!owner || owner->token != token_) throw_taken_over(directory_, owner);
}

void OutputClaim::make_journal(const Identity& identity) const {
  directory_.make();  // by itself, so that an error names what the user named
  with_advice([&] { write_journal(identity); });
}

void OutputClaim::write_journal(const Identity& identity) const {
  make_directory(staged_journal());
  write_new_file(staged_journal() + "/" + OutputDir::kMarkerName, kJournalMarker);
  write_new_file(staged_journal() + "/" + OutputDir::kIdentityName, identity.text());
  write_new_file(staged_journal() + "/" + OutputDir::kOwnerName, Owner::me(token_).text());
  write_new_file(staged_journal() + "/" + OutputDir::kOutputsName, outputs_note_);
  io::File::create(staged_journal() + "/" + OutputDir::kSignOfLifeName).close();
  for (const char* name : {"/parts", "/ledger", "/running", "/scratch"}) make_directory(staged_journal() + name);
  io::sync_directory(staged_journal());
}

/// The first of several runs that begin at once puts its journal in place; the others find it there.
void OutputClaim::put_in_place(RowRange rows) {
  predecessor_.wait_until_over(directory_, token_);
  if (!Owner::read(staged_journal())) throw_taken_over(directory_, read_owner(directory_.journal(), kReplacing_s));
  if (can_continue(directory_, use_, &identity_, staged_name())) {
    with_advice([&] { take_over(rows); });
  } else {
    with_advice([&] { write_owner(rows); });
    replace();
  }
  with_advice([&] {
    sign_of_life_.emplace(directory_.sign_of_life_path());
    io::sync_directory(directory_.path());
  });
}

/// The staged journal's owner, with what is known now. Through a new file: the one that is there may be read.
void OutputClaim::write_owner(RowRange rows) const {
  const std::string path = staged_journal() + "/" + OutputDir::kOwnerName;
  const std::string new_path = staged_journal() + "/" + kNewOwnerName;
  write_new_file(new_path, Owner::me(token_, run_, rows).text());
  rename_path(new_path, path);
}

void OutputClaim::replace() const {
  remove_leftovers(directory_, staged_name());
  if (use_.restart) {
    const std::vector<std::string> old = removable_results(directory_, staged_name());
    remove_paths(old);
    if (!old.empty())
      log::debug("removed {} files and directories of an earlier run from {}", old.size(), directory_.path());
  }
  std::error_code error;
  fs::rename(staged_journal(), directory_.journal(), error);
  if (!error) return;
  if (const auto owner = Owner::read(directory_.journal())) throw_taken_over(directory_, owner);
  with_advice([&] {
    throw Error(ErrorKind::kIo, "{} cannot be renamed to {}: {}", staged_journal(), directory_.journal(),
                error.message());
  });
}

/// The owner first, after its sign of life: from then on an earlier run that still lives adds no rows.
void OutputClaim::take_over(RowRange rows) {
  const auto before = Owner::read(directory_.journal());
  if (before) run_ = before->run + 1;
  const std::vector<PartPaths> parts = list_parts(directory_);
  if (!parts.empty()) run_ = std::max(run_, parts.back().run + 1);
  write_owner(rows);
  rename_path(staged_journal() + "/" + OutputDir::kSignOfLifeName, directory_.sign_of_life_path());
  rename_path(staged_journal() + "/" + OutputDir::kOwnerName, directory_.journal() + "/" + OutputDir::kOwnerName);
  rename_path(staged_journal() + "/" + OutputDir::kOutputsName, directory_.outputs_path());
  if (use_.accept_change) rename_path(staged_journal() + "/" + OutputDir::kIdentityName, directory_.identity_path());
  remove_scratch(directory_.scratch_dir());
  rename_path(staged_scratch_dir(), directory_.scratch_dir());
  make_directory(directory_.running_dir());
  io::sync_directory(directory_.journal());
  remove_leftovers(directory_, "");
}

/// Every rank must see what rank 0 has just written.
void OutputClaim::wait_until_visible(const std::string& journal, const parallel::Comm& world) const {
  parallel::agree_on(world, [&] {
    std::optional<Owner> owner;
    const auto give_up = Clock::now() + std::chrono::duration<double>(visible_within_s_);
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      owner = Owner::read(journal);
      if (owner && owner->token == token_) return;
      if (Clock::now() > give_up) break;
    }
    if (owner) throw_taken_over(directory_, owner);
    throw Error(ErrorKind::kIo,
                "output directory {} is not the one that rank 0 sees ({} is missing here); put it on a "
                "file system that all nodes share",
                directory_.path(), journal);
  });
}

}  // namespace tokenmill::jobs
