#pragma once
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "kernels/emulation/runtime.h"
#include "kernels/emulation/runtime/arena.h"

/// What the files of the emulated runtime share: one process-wide State behind one mutex. The mutex is not held while
/// work of a stream runs, so threads that stand for ranks can wait for each other inside their work.
namespace tokenmill::emulation {

enum class NodeKind { kKernel, kCopy, kFill, kHost, kLibrary };

struct Node {
  NodeKind kind;
  const char* name;
  Operation operation;
  std::vector<size_t> dependencies;  // indices of earlier nodes of the same graph
};

struct Graph {
  std::vector<Node> nodes;
};

struct Stream;

/// One capture between BeginCapture and EndCapture; every stream that joined it holds it.
struct Capture {
  uint64_t id;
  Graph graph;
  Stream* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool invalid = false;
};

/// Versions count records: a wait is for the version of its moment, whatever is recorded later.
struct Event {
  int device = 0;
  bool timing = true;
  uint64_t recorded = 0, completed = 0;
  double completed_s = 0;
  std::weak_ptr<Capture> capture;  // set by a record inside a capture, until the next record
  bool captured = false;
  std::vector<size_t> capture_tail;
};

struct GraphExec {
  std::shared_ptr<const Graph> graph;
  uint64_t launched = 0, finished = 0;  // launches of one executable graph run one after the other
  int device = 0;
  size_t num_bytes = 0;  // of its memory
};

/// A graph on its way through a stream: nodes run one per step, in any order their dependencies allow.
struct GraphRun {
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<const Graph> graph;
  std::vector<bool> done;
  size_t num_done = 0;
};

/// One entry of a stream's queue; it stays at the front while it runs.
struct Item {
  uint64_t sequence = 0;
  NodeKind kind = NodeKind::kHost;
  const char* name = "";
  std::function<bool()> ready;   // under the mutex; none: always
  Operation operation;           // without the mutex; none: nothing to run
  std::function<void()> finish;  // under the mutex, after the operation or when work is skipped
  std::unique_ptr<GraphRun> graph;
};

struct Stream {
  uint64_t id = 0;
  int device = 0;
  bool legacy = false, blocking = true, destroyed = false, busy = false;
  unsigned flags = 0;
  int priority = 0;
  std::deque<Item> queue;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> tail;  // nodes that the next captured piece of work depends on
};

enum class MemoryKind { kDevice, kPinned, kRegistered };

struct Allocation {
  size_t num_bytes;
  MemoryKind kind;
  int device;
};

struct State {
  State();
  std::mutex mutex;
  std::condition_variable changed;  // a piece of work has finished
  Settings settings;
  Counters counters;
  std::mt19937_64 random;
  uint64_t num_streams = 0, num_items = 0, num_captures = 0;
  std::map<uint64_t, std::unique_ptr<Stream>> streams;  // by id; the legacy stream of device d has id d
  std::set<const Stream*> stream_handles;
  std::map<cudaEvent_t, std::shared_ptr<Event>> events;
  std::set<Graph*> graphs;
  std::map<cudaGraphExec_t, std::shared_ptr<GraphExec>> execs;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<uintptr_t, Allocation> allocations;
  std::map<int, size_t> used_bytes;                   // by device
  std::map<int, std::unique_ptr<Arena>> arenas;       // by device
  int num_device_users = 0;                           // pieces of work, of any thread, that may touch device memory now
  std::map<const void*, size_t> dynamic_smem_limits;  // by kernel
  cudaError_t sticky = cudaSuccess;
  std::string failure;
};
State& state();

/// Of the device's memory.
size_t free_bytes(int device);

using Lock = std::unique_lock<std::mutex>;

/// What a call means while a stream captures. kUnsafe: refused where the capture's mode says so, and the capture is
/// lost.
enum class InCapture { kAllowed, kUnsafe };

/// While it lives, device memory can be touched. Made and destroyed under the mutex.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess() { --state().num_device_users; }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};
/// Takes device memory away from the host, if no work uses it: before host functions run and calls return.
void close_device_memory();

/// One call of the API, from its checks to its error code.
class Call {
 public:
  explicit Call(const char* name) : name_(name), lock_(state().mutex) {}
  ~Call() { close_device_memory(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Lock& lock() { return lock_; }
  /// Keeps code as this thread's last error, and "name: text" as the failure.
  template <typename... Args>
  cudaError_t fail(cudaError_t code, fmt::format_string<Args...> format, Args&&... args) {
    return fail_with(code, fmt::format(format, std::forward<Args>(args)...));
  }
  /// The stream of a handle; nullptr after a fail(cudaErrorInvalidResourceHandle) kept in error().
  Stream* stream(cudaStream_t handle);
  std::shared_ptr<Event> event(cudaEvent_t handle);
  cudaError_t error() const { return error_; }
  /// What every call checks first.
  cudaError_t begin(InCapture rule);
  cudaError_t finish(cudaError_t code);

 private:
  cudaError_t fail_with(cudaError_t code, const std::string& text);
  const char* name_;
  Lock lock_;
  cudaError_t error_ = cudaSuccess;
};

/// Runs body(call) under the mutex between the checks that all calls share.
template <typename Body>
cudaError_t api(const char* name, InCapture rule, Body&& body) {
  Call call(name);
  if (const cudaError_t error = call.begin(rule)) return error;
  return call.finish(body(call));
}

/// The calling thread's device.
int current_device();
void set_current_device(int device);
/// This thread's last error; sticky errors aside.
cudaError_t take_last_error();
cudaError_t peek_last_error();

/// While it lives, the thread is inside a host function and may not call the runtime.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
};

/// Captures that forbid unsafe calls of this thread.
std::vector<Capture*> forbidding_captures();
/// This thread's part in that; cudaThreadExchangeStreamCaptureMode.
cudaStreamCaptureMode exchange_thread_capture_mode(cudaStreamCaptureMode mode);

/// The live allocation that holds address, with its start.
struct Found {
  uintptr_t start;
  Allocation allocation;
};
std::optional<Found> find_allocation(const void* address);

}  // namespace tokenmill::emulation
