#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "parallel/connect.h"
#include "parallel/host_communicator.h"
#include "parallel/mpi_transport.h"
#include "parallel/shm_transport.h"
#include "support/immediate_stream.h"

namespace tokenmill::parallel {

/// A communicator of all ranks, with what it needs.
struct TransferGroup {
  explicit TransferGroup(const std::string& route) : name(route), group(Comm::world()) {
    if (route == "auto") {
      communicator = connect(group, stream, progress).communicator;
      return;
    }
    std::vector<std::unique_ptr<HostTransport>> transports;
    // Ways with short pieces first: every longer part goes in many.
    if (route == "mpi, 1000 bytes a message") transports.push_back(std::make_unique<MpiTransport>(group, 1000));
    if (route == "shm, 3 short slots") transports.push_back(std::make_unique<ShmTransport>(group, short_slots()));
    if (route == "mpi" || route == "both") transports.push_back(std::make_unique<MpiTransport>(group));
    if (route == "shm" || route == "both") transports.push_back(std::make_unique<ShmTransport>(group));
    GroupCosts costs{.size = group.size(), .routes = {}};
    if (route == "both") costs.routes = {{"mpi", {2e-6, 1e-9}, {1e-6, 1e-9}}, {"shm", {1e-6, 2e-9}, {2e-6, 0.5e-9}}};
    communicator =
        std::make_unique<HostCommunicator>(group, stream, progress, std::move(transports), costs, PeerWatch(group));
  }
  ShmShape short_slots() const {
    return {.collective = {.num_readers = group.size() - 1, .num_slots = 3, .slot_bytes = 256 + 64 * group.size()},
            .pair = {.num_readers = 1, .num_slots = 3, .slot_bytes = 320}};
  }
  Communicator& operator*() { return *communicator; }
  Communicator* operator->() { return communicator.get(); }
  int rank() const { return group.rank(); }
  int size() const { return group.size(); }

  std::string name;
  Comm group;
  test::ImmediateStream stream;
  HostProgress progress;
  std::unique_ptr<Communicator> communicator;
};

/// Bytes that tell where they come from: of message `id`, written by rank `from` for rank `to`.
inline std::vector<uint8_t> message(int64_t bytes, int id, int from, int to) {
  std::vector<uint8_t> result(static_cast<size_t>(bytes));
  uint64_t state =
      static_cast<uint64_t>(id) * 1000003 + static_cast<uint64_t>(from) * 1009 + static_cast<uint64_t>(to) + 1;
  for (size_t i = 0; i < result.size(); i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(result.data() + i, &state, std::min<size_t>(8, result.size() - i));
  }
  return result;
}

}  // namespace tokenmill::parallel
