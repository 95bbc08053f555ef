// A rank that dies while others of its group wait for it: death_program WAY RANK, under mpiexec; peer_death_test runs it.
// WAY: "watch" (PeerWatch alone), "mpi" or "shm" (an exchange by this route), "nccl" (of device memory, in a build with CUDA)
// or "measure" (while costs are measured).
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "parallel/measure_route.h"
#include "parallel/transfer_group.h"
#ifdef TOKENMILL_CUDA
#include "parallel/device_group.h"
#endif

using namespace tokenmill;
using namespace tokenmill::parallel;

namespace {

/// Kills this process in the middle of its fifth transfer, when that is wished for.
class MortalTransport final : public HostTransport {
 public:
  MortalTransport(const Comm& group, bool dies) : inner_(group), dies_(dies) {}
  const char* name() const override { return inner_.name(); }
  void start(Transfer transfer, const Move& move) override {
    if (dies_ && ++num_started_ == 5) std::raise(SIGKILL);
    inner_.start(transfer, move);
  }
  bool progress() override { return inner_.progress(); }
  bool finished(Transfer transfer) override { return inner_.finished(transfer); }

 private:
  ShmTransport inner_;
  bool dies_;
  int num_started_ = 0;
};

void watch(const Comm& world, bool dies) {
  const PeerWatch peers(world);
  peers.check("nothing");  // all live
  agree(world, std::nullopt);
  if (dies) std::raise(SIGKILL);
  for (;;) {
    peers.check("a sign");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void exchange(const std::string& route, bool dies) {
  TransferGroup group(route);
  const int64_t size = group.size();
  std::vector<uint8_t> sent(static_cast<size_t>(size) * 1000), received(sent.size());
  for (int i = 0;; ++i) {
    if (dies && i == 3) std::raise(SIGKILL);
    group->wait(group->exchange(TensorView(received.data(), DType::kU8, {size, 1000}),
                                TensorView(sent.data(), DType::kU8, {size, 1000})));
  }
}

#ifdef TOKENMILL_CUDA
void exchange_on_devices(bool dies) {
  DeviceGroup group;
  const int64_t size = group.size();
  const Buffer sent = group.memory.allocate(size * 1000), received = group.memory.allocate(size * 1000);
  for (int i = 0;; ++i) {
    if (dies && i == 3) std::raise(SIGKILL);
    group->wait(group->exchange(TensorView(received.data(), DType::kU8, {size, 1000}, /*is_host=*/false),
                                TensorView(sent.data(), DType::kU8, {size, 1000}, /*is_host=*/false)));
    group.stream.synchronize();
  }
}
#endif

}  // namespace

int main(int, char** arguments) {
  MpiSession session(
      {.exit_code = [](ErrorKind) { return 4; },
       .print = [](const Error& error) { std::fprintf(stderr, "error: %s\n", error.what()); }});
  return session.guard([&] {
    const Comm& world = session.world();
    const std::string way = arguments[1];
    const bool dies = world.rank() == std::atoi(arguments[2]);
    if (way == "watch") watch(world, dies);
    if (way == "measure") {
      std::vector<std::unique_ptr<HostTransport>> transports;
      transports.push_back(std::make_unique<MortalTransport>(world, dies));
      measure_routes(world, transports, PeerWatch(world));
    }
#ifdef TOKENMILL_CUDA
    if (way == "nccl") exchange_on_devices(dies);
#endif
    exchange(way, dies);
    return 0;
  });
}
