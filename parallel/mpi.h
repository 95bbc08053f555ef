#pragma once
#include <mpi.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/core/error.h"

/// Around every MPI call: throws Error(kMpi) "MPI_Bcast(...) parallel/x.cpp:12: MPI_ERR_TRUNCATE: message truncated".
#define TM_MPI(call) ::tokenmill::parallel::check_mpi((call), #call, __FILE__, __LINE__)

namespace tokenmill::parallel {

void check_mpi(int code, const char* call, const char* file, int line);

/// A communicator; frees itself when it owns one. Movable, never copied implicitly.
class Comm {
 public:
  Comm() = default;
  ~Comm();
  Comm(Comm&& other) noexcept { swap(other); }
  Comm& operator=(Comm&& other) noexcept {
    Comm moved(std::move(other));
    swap(moved);
    return *this;
  }
  /// MPI_COMM_WORLD, not owned. MPI must be initialized.
  static Comm world();
  /// Collective over this communicator.
  Comm duplicate() const;
  /// Collective. Ranks with equal color share a communicator, ordered by key, then by rank here.
  Comm split(int color, int key) const;
  /// Collective. The ranks that can share memory (one node), in order of their rank here.
  Comm split_shared() const;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm handle() const { return handle_; }

 private:
  Comm(MPI_Comm handle, bool owned);
  void swap(Comm& other) noexcept;
  MPI_Comm handle_ = MPI_COMM_NULL;
  bool owned_ = false;
  int rank_ = 0, size_ = 0;
};

/// This node's name as MPI gives it.
std::string host_name();
/// "rank 5 of 8 on gpu-02": this process in the world; empty when it is alone. MPI must be initialized.
std::string world_place();

/// Thrown by agree(): every rank of the communicator throws the same error at the same place, so all may leave in
/// order.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Collective over comm. When any rank hands in an error, every rank throws the AgreedError of the first such rank, its
/// text after "rank 5 of 8 on gpu-02: " (world rank; no prefix when all ranks failed alike or the world is one rank).
/// Waits without burning the core, so one rank may take its time.
void agree(const Comm& comm, const std::optional<Error>& error);

/// Runs function and agrees on its outcome: an exception on one rank becomes everyone's before the next collective.
template <typename Function>
auto agree_on(const Comm& comm, Function&& function) {
  using Result = std::invoke_result_t<Function>;
  std::optional<Error> error;
  std::optional<std::conditional_t<std::is_void_v<Result>, bool, Result>> result;
  try {
    if constexpr (std::is_void_v<Result>)
      function();
    else
      result.emplace(function());
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    error = Error(ErrorKind::kInternal, std::string(e.what()));
  }
  agree(comm, error);
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

/// Collective: rank 0 of comm runs function on behalf of all; its failure is thrown by all. A mistake of the user
/// (config, input) is not blamed on rank 0.
void run_on_root(const Comm& comm, const std::function<void()>& function);

/// Collective: root's bytes reach every rank. Waits without burning the core.
void broadcast_bytes(const Comm& comm, std::string& bytes, int root);
/// Collective: the bytes of every rank, in rank order, on every rank. Waits without burning the core.
std::vector<std::string> gather_bytes(const Comm& comm, const std::string& bytes);
/// The same for a plain struct: every rank runs the same program.
template <typename T>
std::vector<T> gather_values(const Comm& comm, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values;
  for (const std::string& bytes : gather_bytes(comm, {reinterpret_cast<const char*>(&value), sizeof value}))
    std::memcpy(&values.emplace_back(), bytes.data(), sizeof value);
  return values;
}

/// How a polling loop waits: a few yields for a quick answer, then sleeps that grow to max_sleep_s.
class BackOff {
 public:
  explicit BackOff(double max_sleep_s = 1e-3) : max_sleep_s_(max_sleep_s) {}
  /// For peers that answer within microseconds when they run: spins a few of them (a yield costs about one), then
  /// yields for milliseconds before the first sleep.
  static BackOff quick();
  void pause();
  void reset() { pauses_ = 0; }
  /// Whether it has begun to sleep: the answer is late, so there is time to look why.
  bool sleeps() const { return pauses_ > spins_ + yields_; }

 private:
  double max_sleep_s_;
  int spins_ = 0, yields_ = 20;
  int pauses_ = 0;
};
/// MPI_Wait for long waits: tests with a BackOff instead of spinning.
void wait_quietly(MPI_Request& request);

#ifdef TOKENMILL_ONE_RANK
inline constexpr bool kHasMpi = false;
#else
inline constexpr bool kHasMpi = true;  ///< false: built with TOKENMILL_MPI=off, for one rank (one_rank/mpi.h)
#endif

/// A launcher that would start every process as a world of its own.
struct LauncherProblem {
  std::string text;     ///< for the user
  bool prints = false;  ///< true in the one process of the step that should print; all of them exit with code 2
};
/// To be called before MPI_Init. Finds a Slurm step of several tasks without a process manager (srun --mpi=none), and
/// without MPI any launcher of several processes: each would see a world of one rank and do the whole job. `variable`
/// looks up the environment.
std::optional<LauncherProblem> check_launcher(
    const std::function<std::optional<std::string>(const std::string&)>& variable, bool has_mpi);
/// The same for this process's environment and this build.
std::optional<LauncherProblem> check_launcher();

/// What a fatal error does to the process: app says which exit code a kind has and how a message is printed.
struct FatalPolicy {
  std::function<int(ErrorKind)> exit_code;  ///< at most 125
  std::function<void(const Error&)> print;  ///< one line to the terminal; called on one thread of one rank
};

/// MPI from construction to destruction, with MPI_THREAD_MULTIPLE. Adopts an MPI that the host program initialized (and
/// then does not finalize it). One per process. While it lives, std::terminate and exit() print one message and end the
/// job: a launcher may let the other ranks wait for ever.
class MpiSession {
 public:
  /// Throws Error(kMpi) when the library cannot run several threads.
  explicit MpiSession(FatalPolicy policy);
  /// Finalizes. When it runs because an exception unwinds (this rank alone), it aborts the job instead of hanging.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  const Comm& world() const { return world_; }
  /// "Open MPI v4.1.4": the first part of the library's version text.
  std::string library_version() const;
  int exit_code(const Error& error) const { return policy_.exit_code(error.kind()); }

  /// Runs body and returns the process's exit code: body's result; an AgreedError's code after rank 0 has printed it.
  /// Any other exception belongs to this rank alone and ends the job through abort().
  int guard(const std::function<int()>& body);
  /// Prints error (with world_place() in front) and ends every rank through MPI_Abort with its exit code. Thread-safe:
  /// the first caller wins.
  [[noreturn]] void abort(const Error& error);
  /// The same for a text that already says where it happened.
  [[noreturn]] void abort_as_is(const Error& error);
  /// Ends every rank at once with this exit code, without a message. Thread-safe.
  [[noreturn]] void end_now(int exit_code);

 private:
  static void terminate_handler();
  static void exit_handler();
  [[noreturn]] void end_ranks(int exit_code);
  int end_alone(const Error& error);  // of this rank only
  FatalPolicy policy_;
  Comm world_;
  bool finalizes_ = false;
  int exceptions_at_start_ = 0;
  std::terminate_handler previous_terminate_ = nullptr;
};

}  // namespace tokenmill::parallel
