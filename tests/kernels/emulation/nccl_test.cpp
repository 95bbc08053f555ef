// The stand-in of NCCL between processes. Ranks wait for each other outside streams too, so work is eager, but for the
// tests that say otherwise.
#include <doctest/doctest.h>
#include <mpi.h>

#include <cmath>
#include <numeric>

#include "tests/support/emulated_device.h"

using namespace tokenmill;
using test::DeviceArray;
using test::DeviceStream;
using test::EmulatedDevice;

namespace {

constexpr emulation::Settings kEager{.mode = emulation::Mode::kEager};
constexpr size_t kMany = 100'003;  // floats: several turns through shared memory, and no whole number of them

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// A communicator of all ranks, as the program makes one: the id goes round by MPI.
class World {
 public:
  World() {
    ncclUniqueId id;
    if (rank == 0) ncclGetUniqueId(&id);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    REQUIRE(ncclCommInitRank(&comm, size, id, rank) == ncclSuccess);
  }
  ~World() {
    if (comm != nullptr) ncclCommDestroy(comm);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  const int rank = world_rank(), size = world_size();
  ncclComm_t comm = nullptr;
  DeviceStream stream;
  void synchronize() const { REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess); }
};

/// start, start + 1, ... modulo 97, so that sums are exact in every type.
template <typename T = float>
std::vector<T> ramp(size_t count, int start) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>((start + static_cast<int>(i)) % 97);
  return values;
}

}  // namespace

TEST_CASE("the communicator knows its ranks") {
  const EmulatedDevice device(kEager);
  const World world;
  int count = 0, rank = -1, version = 0;
  CHECK(ncclCommCount(world.comm, &count) == ncclSuccess);
  CHECK(ncclCommUserRank(world.comm, &rank) == ncclSuccess);
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(count == world.size);
  CHECK(rank == world.rank);
  CHECK(version == NCCL_VERSION_CODE);
}

TEST_CASE("all-reduce adds every rank's values in place and out of place") {
  const EmulatedDevice device(kEager);
  const World world;
  const DeviceArray<float> values(ramp(kMany, world.rank)), sum(kMany);
  REQUIRE(ncclAllReduce(values.data(), sum.data(), kMany, ncclFloat32, ncclSum, world.comm, world.stream) ==
          ncclSuccess);
  REQUIRE(ncclAllReduce(values.data(), values.data(), kMany, ncclFloat32, ncclSum, world.comm, world.stream) ==
          ncclSuccess);
  world.synchronize();
  std::vector<float> expected(kMany, 0);
  for (int rank = 0; rank < world.size; ++rank) {
    const auto part = ramp(kMany, rank);
    for (size_t i = 0; i < kMany; ++i) expected[i] += part[i];
  }
  CHECK(sum.read() == expected);
  CHECK(values.read() == expected);
}

TEST_CASE("sums go in rank order, those of bf16 in f32 with one rounding") {
  const EmulatedDevice device(kEager);
  const World world;
  // In rank order 1e8 and -1e8 cancel before the small number is added, or swallow it, as in this loop.
  const float parts[] = {1e8F, -1e8F, 1.5F};
  float expected = parts[0];
  for (int rank = 1; rank < world.size; ++rank) expected += parts[rank % 3];
  const DeviceArray<float> value(std::vector<float>{parts[world.rank % 3]});
  REQUIRE(ncclAllReduce(value.data(), value.data(), 1, ncclFloat32, ncclSum, world.comm, world.stream) == ncclSuccess);
  const DeviceArray<__nv_bfloat16> half(std::vector<__nv_bfloat16>{__float2bfloat16(world.rank == 0 ? 256.0F : 1.0F)});
  REQUIRE(ncclAllReduce(half.data(), half.data(), 1, ncclBfloat16, ncclSum, world.comm, world.stream) == ncclSuccess);
  world.synchronize();
  CHECK(value.read()[0] == expected);
  CHECK(__bfloat162float(half.read()[0]) == __bfloat162float(__float2bfloat16(256.0F + float(world.size - 1))));
}

TEST_CASE("reductions know maximum, minimum, product and average") {
  const EmulatedDevice device(kEager);
  const World world;
  const auto reduce = [&](ncclRedOp_t reduction) {
    const DeviceArray<int64_t> value(std::vector<int64_t>{2 * world.rank + 2});
    REQUIRE(ncclAllReduce(value.data(), value.data(), 1, ncclInt64, reduction, world.comm, world.stream) ==
            ncclSuccess);
    world.synchronize();
    return value.read()[0];
  };
  CHECK(reduce(ncclMax) == 2 * world.size);
  CHECK(reduce(ncclMin) == 2);
  CHECK(reduce(ncclAvg) == world.size + 1);
  int64_t product = 1;
  for (int rank = 0; rank < world.size; ++rank) product *= 2 * rank + 2;
  CHECK(reduce(ncclProd) == product);
}

TEST_CASE("all-gather, reduce-scatter and broadcast move each rank's share") {
  const EmulatedDevice device(kEager);
  const World world;
  const auto size = static_cast<size_t>(world.size);
  const DeviceArray<float> share(ramp(kMany, world.rank)), all(kMany * size), scattered(kMany);
  REQUIRE(ncclAllGather(share.data(), all.data(), kMany, ncclFloat32, world.comm, world.stream) == ncclSuccess);
  REQUIRE(ncclReduceScatter(all.data(), scattered.data(), kMany, ncclFloat32, ncclSum, world.comm, world.stream) ==
          ncclSuccess);
  REQUIRE(ncclBroadcast(share.data(), share.data(), kMany, ncclFloat32, world.size - 1, world.comm, world.stream) ==
          ncclSuccess);
  world.synchronize();
  const auto gathered = all.read();
  for (size_t rank = 0; rank < size; ++rank) {
    CHECK(std::vector<float>(gathered.begin() + long(rank * kMany), gathered.begin() + long((rank + 1) * kMany)) ==
          ramp(kMany, static_cast<int>(rank)));
  }
  auto expected = ramp(kMany, world.rank);
  for (float& value : expected) value *= float(world.size);
  CHECK(scattered.read() == expected);
  CHECK(share.read() == ramp(kMany, world.size - 1));
}

TEST_CASE("sends and receives of a group go round a ring together, to the rank itself too") {
  const EmulatedDevice device(kEager);
  const World world;
  const int next = (world.rank + 1) % world.size, before = (world.rank + world.size - 1) % world.size;
  const DeviceArray<float> out(ramp(kMany, world.rank)), in(kMany), second(10), own(kMany);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend(out.data(), kMany, ncclFloat32, next, world.comm, world.stream) == ncclSuccess);
  CHECK(ncclSend(out.data() + 1, 10, ncclFloat32, next, world.comm, world.stream) == ncclSuccess);
  CHECK(ncclSend(out.data(), kMany, ncclFloat32, world.rank, world.comm, world.stream) == ncclSuccess);
  CHECK(ncclRecv(in.data(), kMany, ncclFloat32, before, world.comm, world.stream) == ncclSuccess);
  CHECK(ncclRecv(second.data(), 10, ncclFloat32, before, world.comm, world.stream) == ncclSuccess);
  CHECK(ncclRecv(own.data(), kMany, ncclFloat32, world.rank, world.comm, world.stream) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  world.synchronize();
  CHECK(in.read() == ramp(kMany, before));
  CHECK(second.read() == ramp(10, before + 1));
  CHECK(own.read() == ramp(kMany, world.rank));
}

TEST_CASE("collectives and messages replay in a graph, lazily too when every rank waits") {
  for (const auto mode : {emulation::Mode::kEager, emulation::Mode::kLazy}) {
    const EmulatedDevice device({.mode = mode});
    const World world;
    const int peer = world.size - 1 - world.rank;
    const DeviceArray<float> value(std::vector<float>{1}), received(1);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(ncclAllReduce(value.data(), value.data(), 1, ncclFloat32, ncclSum, world.comm, world.stream) == ncclSuccess);
    ncclGroupStart();
    CHECK(ncclSend(value.data(), 1, ncclFloat32, peer, world.comm, world.stream) == ncclSuccess);
    CHECK(ncclRecv(received.data(), 1, ncclFloat32, peer, world.comm, world.stream) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    REQUIRE(cudaStreamEndCapture(world.stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; ++i) REQUIRE(cudaGraphLaunch(exec, world.stream) == cudaSuccess);
    world.synchronize();
    CHECK(value.read()[0] == std::pow(world.size, 3));
    CHECK(received.read()[0] == std::pow(world.size, 3));
    cudaGraphDestroy(graph);
    cudaGraphExecDestroy(exec);
  }
}

TEST_CASE("a split orders its ranks by key and leaves out those without a color") {
  const EmulatedDevice device(kEager);
  const World world;
  ncclComm_t reversed = nullptr, part = nullptr;
  REQUIRE(ncclCommSplit(world.comm, 0, -world.rank, &reversed, nullptr) == ncclSuccess);
  REQUIRE(ncclCommSplit(world.comm, world.rank == 0 ? NCCL_SPLIT_NOCOLOR : 7, world.rank, &part, nullptr) ==
          ncclSuccess);
  int rank = -1, count = 0;
  CHECK(ncclCommUserRank(reversed, &rank) == ncclSuccess);
  CHECK(rank == world.size - 1 - world.rank);
  const DeviceArray<float> value(std::vector<float>{float(world.rank)});
  if (world.rank == 0) {
    CHECK(part == nullptr);
  } else {
    CHECK(ncclCommCount(part, &count) == ncclSuccess);
    CHECK(count == world.size - 1);
    REQUIRE(ncclAllReduce(value.data(), value.data(), 1, ncclFloat32, ncclMin, part, world.stream) == ncclSuccess);
    world.synchronize();
    CHECK(value.read()[0] == 1);
    ncclCommDestroy(part);
  }
  ncclCommDestroy(reversed);
}

TEST_CASE("ranks that call different collectives fail with both calls named") {
  const EmulatedDevice device(kEager);
  const World world;
  const DeviceArray<float> values(8);
  const size_t count = world.rank == 0 ? 4 : 8;
  CHECK(ncclAllReduce(values.data(), values.data(), count, ncclFloat32, ncclSum, world.comm, world.stream) ==
        ncclUnhandledCudaError);
  CHECK(cudaStreamSynchronize(world.stream) == cudaErrorLaunchFailure);
  CHECK(emulation::last_failure() ==
        "NCCL collective: rank 1 calls ncclAllReduce(count 8, type 7, reduction 0, root 0) where rank 0 calls "
        "ncclAllReduce(count 4, type 7, reduction 0, root 0)");
}

TEST_CASE("a message of another length than the receiver expects is named") {
  const EmulatedDevice device(kEager);
  const World world;
  const DeviceArray<float> values(8);
  if (world.rank == 0) {
    CHECK(ncclSend(values.data(), 8, ncclFloat32, 1, world.comm, world.stream) == ncclSuccess);
  } else if (world.rank == 1) {
    CHECK(ncclRecv(values.data(), 4, ncclFloat32, 0, world.comm, world.stream) == ncclUnhandledCudaError);
    CHECK(emulation::last_failure() == "NCCL sends and receives: rank 0 sends 32 bytes where 16 are received");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("memory of the host fails the call on its rank and reaches the others as a remote error") {
  const EmulatedDevice device(kEager);
  const World world;
  float on_host = 0;
  const DeviceArray<float> value(1);
  float* memory = world.rank == 0 ? &on_host : value.data();
  const ncclResult_t result = ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum, world.comm, world.stream);
  ncclResult_t async_error = ncclSuccess;
  CHECK(ncclCommGetAsyncError(world.comm, &async_error) == ncclSuccess);
  CHECK(async_error == ncclRemoteError);
  CHECK(result == (world.rank == 0 ? ncclUnhandledCudaError : ncclSuccess));
}

TEST_CASE("an abort ends what the other ranks wait for") {
  const EmulatedDevice device(kEager);
  World world;
  const DeviceArray<float> value(1);
  if (world.rank == 0) {
    CHECK(ncclCommAbort(world.comm) == ncclSuccess);
    world.comm = nullptr;
  } else {
    CHECK(ncclAllReduce(value.data(), value.data(), 1, ncclFloat32, ncclSum, world.comm, world.stream) == ncclSuccess);
    CHECK(cudaStreamSynchronize(world.stream) == cudaSuccess);
    ncclResult_t async_error = ncclSuccess;
    CHECK(ncclCommGetAsyncError(world.comm, &async_error) == ncclSuccess);
    CHECK(async_error == ncclRemoteError);
  }
}

TEST_CASE("ranks that disagree about their number do not meet") {
  const EmulatedDevice device(kEager);
  ncclUniqueId id;
  const int rank = world_rank(), size = world_size();
  if (rank == 0) ncclGetUniqueId(&id);
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, rank == 0 ? size + 1 : size, id, rank) == ncclInvalidUsage);
  CHECK(comm == nullptr);
  ncclUniqueId garbage{};
  CHECK(ncclCommInitRank(&comm, size, garbage, rank) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&comm, size, id, size) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
}
