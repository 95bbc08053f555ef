#include "parallel/mpi.h"

#include <immintrin.h>
#include <sched.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <thread>

#include "kernels/core/check.h"
#include "kernels/core/source_place.h"

namespace tokenmill::parallel {
namespace {

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error code {}", code);
  return std::string(text, static_cast<size_t>(length));
}

/// MPI counts are int: larger texts do not occur on these paths.
int mpi_count(size_t bytes) {
  TM_ASSERT(bytes <= size_t{1} << 30, "{} bytes in one message", bytes);
  return static_cast<int>(bytes);
}

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

void check_mpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  throw Error(ErrorKind::kMpi, "{} {}:{}: {}", call, source_path(file), line, mpi_error_text(code));
}

Comm::Comm(MPI_Comm handle, bool owned) : handle_(handle), owned_(owned) {
  TM_MPI(MPI_Comm_rank(handle_, &rank_));
  TM_MPI(MPI_Comm_size(handle_, &size_));
}

Comm::~Comm() {
  if (!owned_) return;
  int finalized = 0;
  if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized) MPI_Comm_free(&handle_);
}

void Comm::swap(Comm& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(owned_, other.owned_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
}

Comm Comm::world() { return Comm(MPI_COMM_WORLD, false); }

Comm Comm::duplicate() const {
  MPI_Comm handle = MPI_COMM_NULL;
  TM_MPI(MPI_Comm_dup(handle_, &handle));
  return Comm(handle, true);
}

Comm Comm::split(int color, int key) const {
  MPI_Comm handle = MPI_COMM_NULL;
  TM_MPI(MPI_Comm_split(handle_, color, key, &handle));
  return Comm(handle, true);
}

Comm Comm::split_shared() const {
  MPI_Comm handle = MPI_COMM_NULL;
  TM_MPI(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &handle));
  return Comm(handle, true);
}

std::string host_name() {
  char name[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  TM_MPI(MPI_Get_processor_name(name, &length));
  return std::string(name, static_cast<size_t>(length));
}

std::string world_place() {
  const Comm world = Comm::world();
  if (world.size() == 1) return "";
  return fmt::format("rank {} of {} on {}", world.rank(), world.size(), host_name());
}

void agree(const Comm& comm, const std::optional<Error>& error) {
  // One minimum finds the first failing rank and whether all texts are equal: hash and ~hash have the same extremes.
  const uint64_t hash = error ? XXH3_64bits(error->what(), std::char_traits<char>::length(error->what())) : 0;
  std::array<uint64_t, 3> mine{static_cast<uint64_t>(error ? comm.rank() : comm.size()), hash, ~hash};
  std::array<uint64_t, 3> least{};
  MPI_Request request = MPI_REQUEST_NULL;
  TM_MPI(MPI_Iallreduce(mine.data(), least.data(), 3, MPI_UINT64_T, MPI_MIN, comm.handle(), &request));
  wait_quietly(request);
  const int first = static_cast<int>(least[0]);
  if (first == comm.size()) return;
  const bool all_alike = least[1] == ~least[2];
  std::string text;
  if (first == comm.rank()) {
    const std::string place = all_alike ? "" : world_place();
    text = std::string(1, static_cast<char>(error->kind())) + (place.empty() ? "" : place + ": ") + error->what();
  }
  broadcast_bytes(comm, text, first);
  throw AgreedError(static_cast<ErrorKind>(text[0]), text.substr(1));
}

void run_on_root(const Comm& comm, const std::function<void()>& function) {
  std::string text;  // of a user's mistake: its kind, then its words
  agree_on(comm, [&] {
    if (comm.rank() != 0) return;
    try {
      function();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kConfig && e.kind() != ErrorKind::kInput) throw;
      text = std::string(1, static_cast<char>(e.kind())) + e.what();
    }
  });
  broadcast_bytes(comm, text, 0);
  if (!text.empty()) throw AgreedError(static_cast<ErrorKind>(text[0]), text.substr(1));
}

void broadcast_bytes(const Comm& comm, std::string& bytes, int root) {
  uint64_t size = bytes.size();
  MPI_Request request = MPI_REQUEST_NULL;
  TM_MPI(MPI_Ibcast(&size, 1, MPI_UINT64_T, root, comm.handle(), &request));
  wait_quietly(request);
  bytes.resize(size);
  TM_MPI(MPI_Ibcast(bytes.data(), mpi_count(size), MPI_CHAR, root, comm.handle(), &request));
  wait_quietly(request);
}

std::vector<std::string> gather_bytes(const Comm& comm, const std::string& bytes) {
  const int size = mpi_count(bytes.size());
  std::vector<int> sizes(static_cast<size_t>(comm.size()));
  MPI_Request request = MPI_REQUEST_NULL;
  TM_MPI(MPI_Iallgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm.handle(), &request));
  wait_quietly(request);
  std::vector<int> offsets;
  size_t total = 0;
  for (const int n : sizes) {
    offsets.push_back(mpi_count(total));
    total += static_cast<size_t>(n);
  }
  std::string all(total, '\0');
  TM_MPI(MPI_Iallgatherv(bytes.data(), size, MPI_CHAR, all.data(), sizes.data(), offsets.data(), MPI_CHAR,
                         comm.handle(), &request));
  wait_quietly(request);
  std::vector<std::string> parts;
  for (size_t i = 0; i < sizes.size(); ++i)
    parts.push_back(all.substr(static_cast<size_t>(offsets[i]), static_cast<size_t>(sizes[i])));
  return parts;
}

BackOff BackOff::quick() {
  BackOff back_off(0.5e-3);
  back_off.spins_ = 20;
  back_off.yields_ = 10000;
  return back_off;
}

void BackOff::pause() {
  const int pauses = pauses_++;
  if (pauses < spins_) {
    _mm_pause();
    return;
  }
  if (pauses < spins_ + yields_) {
    sched_yield();
    return;
  }
  const double growing_s = 50e-6 * std::pow(1.5, std::min(pauses - spins_ - yields_, 30));
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(growing_s, max_sleep_s_)));
}

void wait_quietly(MPI_Request& request) {
  BackOff back_off;
  for (int done = 0;; back_off.pause()) {
    TM_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done) return;
  }
}

namespace {

/// Built without MPI: the launcher's own number of processes counts, Slurm's where mpirun runs inside of a step does
/// not.
std::optional<LauncherProblem> check_alone(
    const std::function<std::optional<std::string>(const std::string&)>& variable) {
  for (const auto& [size_name, rank_name] :
       {std::pair("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), std::pair("PMI_SIZE", "PMI_RANK"),
        std::pair("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")}) {
    const auto size = variable(size_name);
    if (!size) continue;
    if (std::atoll(size->c_str()) <= 1) return std::nullopt;
    return LauncherProblem{
        .text = fmt::format("this program was built without MPI (TOKENMILL_MPI=off), so each of the launcher's {} "
                            "processes ({}) would do the whole job; start it alone, or use a build with MPI",
                            *size, size_name),
        .prints = variable(rank_name).value_or("0") == "0"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<LauncherProblem> check_launcher(
    const std::function<std::optional<std::string>(const std::string&)>& variable, bool has_mpi) {
  if (!has_mpi) return check_alone(variable);
  const auto tasks = variable("SLURM_STEP_NUM_TASKS");
  if (!tasks || std::atoll(tasks->c_str()) <= 1) return std::nullopt;
  for (const char* manager : {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_SIZE"})
    if (variable(manager)) return std::nullopt;
  LauncherProblem problem;
  problem.text = fmt::format(
      "this Slurm step has {} tasks, but its launcher offers no PMI, so every task would see a world of one rank and "
      "do "
      "the whole job; start it with srun --mpi=pmix, or with mpirun inside the allocation",
      *tasks);
  problem.prints = variable("SLURM_PROCID").value_or("0") == "0";
  return problem;
}

std::optional<LauncherProblem> check_launcher() { return check_launcher(environment_variable, kHasMpi); }

namespace {
std::atomic<MpiSession*> live_session = nullptr;
}  // namespace

MpiSession::MpiSession(FatalPolicy policy)
    : policy_(std::move(policy)), exceptions_at_start_(std::uncaught_exceptions()) {
  int initialized = 0;
  int provided = MPI_THREAD_SINGLE;
  TM_MPI(MPI_Initialized(&initialized));
  if (initialized) {
    TM_MPI(MPI_Query_thread(&provided));
  } else {
    TM_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
    finalizes_ = true;
  }
  TM_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  world_ = Comm::world();
  if (provided < MPI_THREAD_MULTIPLE) {
    const std::string version = library_version();
    if (finalizes_) MPI_Finalize();
    throw Error(
        ErrorKind::kMpi,
        "{} was built without thread support (it grants level {}, tokenmill needs MPI_THREAD_MULTIPLE {}); use an "
        "MPI library built with it",
        version, provided, MPI_THREAD_MULTIPLE);
  }
  MpiSession* none = nullptr;
  TM_ASSERT(live_session.compare_exchange_strong(none, this), "two MPI sessions in one process");
  previous_terminate_ = std::set_terminate(&MpiSession::terminate_handler);
  static const int registered = std::atexit(&MpiSession::exit_handler);  // the sessions of a process share it
  TM_ASSERT(registered == 0);
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() > exceptions_at_start_ && world_.size() > 1)
    MPI_Abort(MPI_COMM_WORLD, policy_.exit_code(ErrorKind::kInternal));
  std::set_terminate(previous_terminate_);
  live_session = nullptr;
  if (finalizes_) MPI_Finalize();
}

std::string MpiSession::library_version() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  TM_MPI(MPI_Get_library_version(text, &length));
  const std::string version(text, static_cast<size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

int MpiSession::guard(const std::function<int()>& body) {
  try {
    return body();
  } catch (const AgreedError& e) {
    if (world_.rank() == 0) policy_.print(e);
    return exit_code(e);
  } catch (const Error& e) {
    return end_alone(e);
  } catch (const std::exception& e) {
    return end_alone(Error(ErrorKind::kInternal, std::string(e.what())));
  }
}

int MpiSession::end_alone(const Error& error) {
  if (world_.size() > 1) abort(error);
  policy_.print(error);
  return exit_code(error);
}

void MpiSession::abort(const Error& error) {
  std::string place;
  try {
    place = world_place();
  } catch (const Error&) {  // a broken MPI must not keep the message back
  }
  abort_as_is(place.empty() ? error : Error(error.kind(), place + ": " + error.what()));
}

namespace {

std::atomic<bool> aborting = false;

/// Returns in one thread only.
void only_once() {
  if (aborting.exchange(true))
    for (;;) pause();
}

}  // namespace

void MpiSession::abort_as_is(const Error& error) {
  only_once();
  policy_.print(error);
  end_ranks(exit_code(error));
}

void MpiSession::end_now(int exit_code) {
  only_once();
  end_ranks(exit_code);
}

void MpiSession::end_ranks(int exit_code) {
  if (world_.size() > 1) MPI_Abort(MPI_COMM_WORLD, exit_code);  // alone, it would only add its own message
  _exit(exit_code);
}

void MpiSession::exit_handler() {
  MpiSession* session = live_session;
  if (session == nullptr || aborting) return;  // main has returned, or MPI_Abort calls exit()
  session->abort(Error(ErrorKind::kInternal,
                       "something called exit() while the job runs (a library?); what it wrote last may say why"));
}

void MpiSession::terminate_handler() {
  MpiSession* session = live_session;
  std::string text = "std::terminate was called";
  if (const std::exception_ptr exception = std::current_exception()) {
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception& e) {
      text = fmt::format("uncaught exception: {}", e.what());
    } catch (...) {
      text = "uncaught exception of an unknown type";
    }
  }
  if (session == nullptr) std::abort();
  session->abort(Error(ErrorKind::kInternal, text));
}

}  // namespace tokenmill::parallel
