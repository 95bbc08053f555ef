#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "parallel/transfer_group.h"
#include "support/captured_log.h"

namespace tokenmill::parallel {
namespace {

const std::vector<std::string> kRoutes{"mpi", "mpi, 1000 bytes a message", "shm", "shm, 3 short slots", "both", "auto"};
constexpr int kEveryone = 99;  // a message's receiver when all get the same

/// One transfer of this rank with its memory: what it sends, where it receives, and what must come.
struct Call {
  TransferKind kind;
  std::vector<uint8_t> sent, received, expected;
  Communicator::Transfer transfer = 0;
};

void append(std::vector<uint8_t>& all, const std::vector<uint8_t>& part) {
  all.insert(all.end(), part.begin(), part.end());
}

/// Starts message `id`, of n elements of dtype between each pair of ranks; a send goes to the next rank and a recv
/// comes from the one before.
Call start(TransferGroup& group, TransferKind kind, DType dtype, int64_t n, int id) {
  const int64_t bytes = n * dtype_size(dtype);
  const int here = group.rank(), size = group.size(), root = id % size;
  const int next = (here + 1) % size, previous = (here + size - 1) % size;
  Call call{.kind = kind};
  switch (kind) {
    case TransferKind::kExchange:
      for (int other = 0; other < size; ++other) {
        append(call.sent, message(bytes, id, here, other));
        append(call.expected, message(bytes, id, other, here));
      }
      break;
    case TransferKind::kAllGather:
      call.sent = message(bytes, id, here, kEveryone);
      for (int other = 0; other < size; ++other) append(call.expected, message(bytes, id, other, kEveryone));
      break;
    case TransferKind::kBroadcast:
      call.expected = message(bytes, id, root, kEveryone);
      if (here == root) call.received = call.expected;
      break;
    case TransferKind::kSend:
      call.sent = message(bytes, id, here, next);
      break;
    case TransferKind::kRecv:
      call.expected = message(bytes, id, previous, here);
      break;
  }
  call.received.resize(call.expected.size(), 0xee);
  const auto view = [&](std::vector<uint8_t>& memory, std::initializer_list<int64_t> shape) {
    return TensorView(memory.data(), dtype, shape);
  };
  switch (kind) {
    case TransferKind::kExchange:
      call.transfer = group->exchange(view(call.received, {size, n}), view(call.sent, {size, n}));
      break;
    case TransferKind::kAllGather:
      call.transfer = group->all_gather(view(call.received, {size, n}), view(call.sent, {n}));
      break;
    case TransferKind::kBroadcast:
      call.transfer = group->broadcast(view(call.received, {n}), root);
      break;
    case TransferKind::kSend:
      call.transfer = group->send(view(call.sent, {n}), next);
      break;
    case TransferKind::kRecv:
      call.transfer = group->recv(view(call.received, {n}), previous);
      break;
  }
  return call;
}

void finish(TransferGroup& group, Call& call) {
  group->wait(call.transfer);
  CHECK_MESSAGE(call.received == call.expected, to_string(call.kind), " of ", call.expected.size(), " bytes");
  std::fill(call.sent.begin(), call.sent.end(), uint8_t{0xcc});  // ours again
}

constexpr TransferKind kKinds[] = {TransferKind::kExchange, TransferKind::kAllGather, TransferKind::kBroadcast,
                                   TransferKind::kSend, TransferKind::kRecv};

TEST_CASE("every kind moves every dtype at every size, by each route") {
  for (const std::string& route : kRoutes) {
    CAPTURE(route);
    TransferGroup group(route);
    int id = 0;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8})
      for (const int64_t n : {0, 1, 31, 4096, 100003}) {
        CAPTURE(to_string(dtype));
        ++id;
        for (const TransferKind kind : {TransferKind::kExchange, TransferKind::kAllGather, TransferKind::kBroadcast}) {
          Call call = start(group, kind, dtype, n, id);
          finish(group, call);
        }
        Call sent = start(group, TransferKind::kSend, dtype, n, id);
        Call received = start(group, TransferKind::kRecv, dtype, n, id);
        finish(group, received);
        finish(group, sent);
      }
  }
}

TEST_CASE("parts of several MiB go through rings that hold less, whoever waits first") {
  for (const std::string& route : kRoutes) {
    CAPTURE(route);
    TransferGroup group(route);
    const int64_t n = route == "shm, 3 short slots" ? 300007 : 3000017;
    Call sent = start(group, TransferKind::kSend, DType::kU8, n, 1);
    Call exchange = start(group, TransferKind::kExchange, DType::kBF16, n / 2, 2);
    Call received = start(group, TransferKind::kRecv, DType::kU8, n, 1);
    Call broadcast = start(group, TransferKind::kBroadcast, DType::kF32, n / 4, 3);
    Call gather = start(group, TransferKind::kAllGather, DType::kU8, n, 4);
    std::vector<Call*> calls{&sent, &exchange, &received, &broadcast, &gather};
    std::rotate(calls.begin(), calls.begin() + group.rank() % 5, calls.end());
    if (group.rank() % 2 == 1) std::reverse(calls.begin(), calls.end());
    for (Call* call : calls) finish(group, *call);
  }
}

TEST_CASE("random calls with random delays, waited for in another order on each rank") {
  for (const std::string& route : kRoutes) {
    CAPTURE(route);
    TransferGroup group(route);
    std::mt19937 shared(4711);                                    // the same on all ranks
    std::mt19937 own(static_cast<unsigned>(group.rank()) + 100);  // and not
    std::vector<Call> open;
    for (int id = 0; id < 300; ++id) {
      const TransferKind kind = kKinds[shared() % 5];
      const bool is_long = shared() % 16 == 0;
      const auto n = static_cast<int64_t>(shared() % (is_long ? 50000 : 300));
      if (kind == TransferKind::kSend || kind == TransferKind::kRecv) {
        open.push_back(start(group, TransferKind::kSend, DType::kU8, n, id));
        open.push_back(start(group, TransferKind::kRecv, DType::kU8, n, id));
      } else {
        open.push_back(start(group, kind, DType::kU8, n, id));
      }
      if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
      while (open.size() > own() % 12) {
        const size_t chosen = own() % open.size();
        finish(group, open[chosen]);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(chosen));
      }
    }
    for (Call& call : open) finish(group, call);
  }
}

TEST_CASE("two groups of the same ranks, waited for in opposite orders, do not hold each other up") {
  for (const std::string route : {"shm, 3 short slots", "mpi"}) {
    CAPTURE(route);
    TransferGroup first(route), second(route);
    second.communicator.reset();
    std::vector<std::unique_ptr<HostTransport>> transports;
    transports.push_back(std::make_unique<ShmTransport>(second.group, second.short_slots()));
    second.communicator = std::make_unique<HostCommunicator>(
        second.group, second.stream, first.progress, std::move(transports), GroupCosts{}, PeerWatch(second.group));
    Call a = start(first, TransferKind::kExchange, DType::kU8, 200000, 1);
    Call b = start(second, TransferKind::kAllGather, DType::kU8, 50000, 2);
    if (first.rank() % 2 == 0) {
      finish(first, a);
      finish(second, b);
    } else {
      finish(second, b);
      finish(first, a);
    }
    second.communicator.reset();  // before the progress it uses
  }
}

TEST_CASE("calls, bytes and seconds are counted by kind") {
  for (const std::string route : {"mpi", "shm", "both"}) {
    CAPTURE(route);
    TransferGroup group(route);
    const int64_t size = group.size();
    for (int id = 0; id < 3; ++id)
      for (const TransferKind kind : kKinds) {
        Call call = start(group, kind, DType::kBF16, 100, id * 4);
        if (kind == TransferKind::kExchange) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        finish(group, call);
      }
    const auto count = [&](TransferKind kind) { return group->counts()[static_cast<size_t>(kind)]; };
    for (const TransferKind kind : {TransferKind::kExchange, TransferKind::kAllGather}) {
      CHECK(count(kind).calls == 3);
      CHECK(count(kind).sent_bytes == 3 * 200 * (size - 1));
      CHECK(count(kind).received_bytes == 3 * 200 * (size - 1));
      CHECK(count(kind).exposed_s > 0);
    }
    int64_t times_root = 0;
    for (int id = 0; id < 3; ++id) times_root += id * 4 % size == group.rank();
    CHECK(count(TransferKind::kBroadcast).sent_bytes == times_root * 200 * (size - 1));
    CHECK(count(TransferKind::kBroadcast).received_bytes == (3 - times_root) * 200);
    CHECK(count(TransferKind::kSend).sent_bytes == 3 * 200);
    CHECK(count(TransferKind::kSend).received_bytes == 0);
    CHECK(count(TransferKind::kRecv).received_bytes == 3 * 200);
    // Without costs nothing is known to be hidden; with them never more than three times what a transfer costs alone.
    CHECK(count(TransferKind::kExchange).hidden_s >= 0);
    CHECK(count(TransferKind::kExchange).hidden_s <= (route == "both" ? 3 * (1e-6 + 2e-9 * 600) : 0.0));
  }
}

TEST_CASE("a recording of transfers and their waits is replayed with what lies in its tensors then") {
  for (const std::string route : {"mpi", "shm", "both"}) {
    CAPTURE(route);
    TransferGroup group(route);
    const int64_t size = group.size();
    std::vector<int32_t> mine(5), all(static_cast<size_t>(5 * size)), back(all.size());
    const auto view = [](std::vector<int32_t>& memory, std::initializer_list<int64_t> shape) {
      return TensorView(memory.data(), DType::kI32, shape);
    };
    group.stream.begin_capture();
    group->wait(group->all_gather(view(all, {size, 5}), view(mine, {5})));
    group->wait(group->exchange(view(back, {size, 5}), view(all, {size, 5})));
    const auto recording = group.stream.end_capture();
    CHECK(all == std::vector<int32_t>(all.size()));
    for (int round = 1; round <= 3; ++round) {
      std::fill(mine.begin(), mine.end(), 10 * round + group.rank());
      group.stream.replay(*recording);
      for (int64_t from = 0; from < size; ++from) {
        CHECK(all[static_cast<size_t>(from * 5 + 4)] == 10 * round + from);
        CHECK(back[static_cast<size_t>(from * 5)] == 10 * round + group.rank());
      }
    }
  }
}

TEST_CASE("parts that do not match are named on the rank that receives them") {
  for (const std::string route : {"mpi", "shm"}) {
    CAPTURE(route);
    TransferGroup group(route);
    std::vector<uint8_t> memory(100);
    if (group.rank() == 0) group->wait(group->send(TensorView(memory.data(), DType::kU8, {60}), 1));
    if (group.rank() == 1) {
      const auto transfer = group->recv(TensorView(memory.data(), DType::kU8, {80}), 0);
      CHECK_THROWS_WITH_AS(group->wait(transfer), doctest::Contains("60"), Error);
    }
    agree(group.group, std::nullopt);
  }
}

/// While it lives this process cannot open another file.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    const int next = ::dup(STDERR_FILENO);  // the lowest free descriptor
    ::close(next);
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("where one rank cannot get at the shared memory, MPI carries all and a warning says why") {
  const Comm world = Comm::world();
  for (const int without : {0, world.size() - 1}) {  // makes it; opens it
    CAPTURE(without);
    test::ImmediateStream stream;
    HostProgress progress;
    std::optional<NoMoreFiles> limit;
    const test::CapturedLog log;
    if (world.rank() == without) limit.emplace();
    CHECK_THROWS_WITH_AS(connect(world, stream, progress, Route::kShm), doctest::Contains("Too many open files"),
                         AgreedError);
    const Connection fallback = connect(world, stream, progress);
    limit.reset();
    REQUIRE(fallback.costs.routes.size() == 1);
    CHECK(fallback.costs.routes[0].name == "mpi");
    const std::string text = log.text();
    CHECK((text.find("the ranks of this node use MPI messages instead") != text.npos) == (world.rank() == 0));
    if (world.rank() == 0) CHECK(text.find(without == 0 ? "memfd_create" : "open /proc/") != text.npos);
    int32_t value = world.rank() == 0 ? 7 : 0;
    fallback.communicator->wait(fallback.communicator->broadcast(TensorView(&value, DType::kI32, {1}), 0));
    CHECK(value == 7);
  }
}

TEST_CASE("a group of one rank needs no transport, and memory that is not the host's is refused") {
  TransferGroup group("shm");
  const Comm alone = Comm::world().split(group.rank(), 0);
  test::ImmediateStream stream;
  HostProgress progress;
  const Connection self = connect(alone, stream, progress);
  CHECK(self.communicator->size() == 1);
  CHECK(self.costs.routes.empty());
  std::vector<uint8_t> memory(100);
  CHECK_THROWS_WITH_AS(group->broadcast(TensorView(memory.data(), DType::kU8, {80}, /*is_host=*/false), 0),
                       doctest::Contains("is not in host memory"), Error);
}

}  // namespace
}  // namespace tokenmill::parallel
