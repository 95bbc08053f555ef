#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/emulation/grid.h"

/// The host stand-in for the CUDA runtime: what launches and the stand-ins of cuBLAS and NCCL need, and what tests
/// steer and ask. The runtime itself is called through NVIDIA's own headers.
namespace tokenmill::emulation {

/// kLazy: work runs only when the host waits or asks, one step at a time, streams in an order drawn from the seed, so
/// that a missing wait shows. kEager: work runs when it is enqueued; needed where ranks wait for each other outside
/// streams.
enum class Mode { kLazy, kEager };

/// What the emulated machine is. Start values come from the environment: TOKENMILL_EMULATION_MODE (lazy, eager), _SEED,
/// _DEVICES, _MEMORY (bytes of each device), _CONTEXT, _GRAPH_NODE (bytes), _CAPABILITY (80, 90), _MULTIPROCESSORS and
/// _GUARD (0, 1).
struct Settings {
  Mode mode = Mode::kLazy;
  uint64_t seed = 2;  ///< 0, 1: warps and blocks of every kernel in forward, in reverse order; others: in random order
  int num_devices = 1;
  size_t memory_bytes = size_t{1} << 30;
  size_t context_bytes = 0;        ///< of it, gone before anything is allocated
  size_t graph_node_bytes = 1024;  ///< of it, for each node of an executable graph
  int compute_capability = 90;  ///< 10 * major + minor
  int num_multiprocessors = 4;
  bool guard_memory = true;  ///< host code that touches device memory gets a segmentation fault, as with a device
};
Settings settings();
/// Takes effect for later calls and starts the order of work anew from the seed.
void configure(const Settings& settings);

/// Calls so far. Work of a replayed graph counts when it runs, other work when it is enqueued.
struct Counters {
  int64_t device_allocations = 0;
  int64_t host_allocations = 0;  ///< pinned or registered
  int64_t blocking_copies = 0;   ///< copies and fills on which the host waits
  int64_t copies = 0;            ///< other than by kernels
  int64_t pageable_copies = 0;   ///< asynchronous copies from or to host memory that is not pinned
  int64_t synchronizations = 0;  ///< of a device, stream or event
  int64_t launches = 0;          ///< kernels
  int64_t graph_launches = 0;
};
Counters counters();

/// Forgets errors (a sticky one too), counters, queued work and captures; memory, streams, events and settings stay.
void reset();

/// One sentence about the last call or piece of work that failed; empty if none did since reset().
std::string last_failure();

/// What a piece of work on a stream came to. A code other than cudaSuccess is sticky, as on a device.
struct Status {
  cudaError_t code = cudaSuccess;
  std::string text;
};
using Operation = std::function<Status()>;

/// Appends work to a stream, or to the graph that the stream captures. name lives as long as the program.
cudaError_t enqueue(cudaStream_t stream, const char* name, Operation operation);

/// Checks the shape as a launch does and appends the grid; thread_body runs once per CUDA thread when its turn comes.
cudaError_t enqueue_kernel(cudaStream_t stream, const LaunchShape& shape, std::function<void()> thread_body);

/// True if the bytes lie in one live allocation of device memory; 0 bytes always do.
bool in_device_memory(const void* pointer, size_t num_bytes);
/// The same for memory that kernels reach: a device's, or pinned.
bool reachable_by_kernels(const void* pointer, size_t num_bytes);

}  // namespace tokenmill::emulation
