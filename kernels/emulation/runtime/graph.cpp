#include "kernels/emulation/runtime/scheduler.h"

namespace tokenmill::emulation {
namespace {

Graph* graph_of(Call& call, cudaGraph_t handle) {
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (state().graphs.contains(graph)) return graph;
  call.fail(cudaErrorInvalidValue, "{} is not a graph", static_cast<const void*>(handle));
  return nullptr;
}

std::shared_ptr<GraphExec> exec_of(Call& call, cudaGraphExec_t handle) {
  const auto found = state().execs.find(handle);
  if (found != state().execs.end()) return found->second;
  call.fail(cudaErrorInvalidValue, "{} is not an executable graph", static_cast<const void*>(handle));
  return nullptr;
}

bool same_shape(const Graph& a, const Graph& b) {
  if (a.nodes.size() != b.nodes.size()) return false;
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    if (a.nodes[i].kind != b.nodes[i].kind || a.nodes[i].dependencies != b.nodes[i].dependencies) return false;
  }
  return true;
}

}  // namespace
}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* handle, cudaGraph_t graph_handle, unsigned long long) {
  return api("cudaGraphInstantiate", InCapture::kAllowed, [&](Call& call) {
    const Graph* graph = graph_of(call, graph_handle);
    if (graph == nullptr) return call.error();
    const size_t num_bytes = graph->nodes.size() * state().settings.graph_node_bytes;
    if (num_bytes > free_bytes(current_device())) {
      return call.fail(cudaErrorMemoryAllocation, "a graph of {} bytes, {} are free", num_bytes,
                       free_bytes(current_device()));
    }
    auto exec = std::make_shared<GraphExec>();
    exec->device = current_device();
    exec->num_bytes = num_bytes;
    state().used_bytes[exec->device] += num_bytes;
    exec->graph = std::make_shared<const Graph>(*graph);
    *handle = reinterpret_cast<cudaGraphExec_t>(exec.get());
    state().execs[*handle] = std::move(exec);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  return api("cudaGraphLaunch", InCapture::kAllowed, [&](Call& call) {
    const auto exec = exec_of(call, handle);
    Stream* stream = call.stream(stream_handle);
    if (!exec || stream == nullptr) return call.error();
    if (stream->capture) return call.fail(cudaErrorNotSupported, "graphs inside graphs are not emulated");
    if (const cudaError_t error = refuse_implicit_capture(call, *stream)) return error;
    ++state().counters.graph_launches;
    Item item;
    item.name = "graph";
    item.graph = std::make_unique<GraphRun>();
    item.graph->graph = exec->graph;
    item.graph->done.assign(exec->graph->nodes.size(), false);
    item.ready = [exec, ticket = exec->launched++] { return exec->finished == ticket; };
    item.finish = [exec] { ++exec->finished; };
    push(call, *stream, std::move(item));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t stream) {
  return api("cudaGraphUpload", InCapture::kAllowed, [&](Call& call) {
    return exec_of(call, handle) && call.stream(stream) != nullptr ? cudaSuccess : call.error();
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* num_nodes) {
  return api("cudaGraphGetNodes", InCapture::kAllowed, [&](Call& call) {
    Graph* graph = graph_of(call, handle);
    if (graph == nullptr) return call.error();
    if (nodes != nullptr) {
      for (size_t i = 0; i < *num_nodes; ++i) {
        nodes[i] = i < graph->nodes.size() ? reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]) : nullptr;
      }
    }
    *num_nodes = graph->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t handle, cudaGraph_t graph_handle, cudaGraphExecUpdateResultInfo* info) {
  return api("cudaGraphExecUpdate", InCapture::kAllowed, [&](Call& call) {
    const auto exec = exec_of(call, handle);
    const Graph* graph = graph_of(call, graph_handle);
    if (!exec || graph == nullptr) return call.error();
    *info = {};
    info->result =
        same_shape(*exec->graph, *graph) ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    if (info->result != cudaGraphExecUpdateSuccess) {
      return call.fail(cudaErrorGraphExecUpdateFailure, "the graphs differ in their nodes or dependencies");
    }
    exec->graph = std::make_shared<const Graph>(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  return api("cudaGraphDestroy", InCapture::kAllowed, [&](Call& call) {
    Graph* graph = graph_of(call, handle);
    if (graph == nullptr) return call.error();
    state().graphs.erase(graph);
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  return api("cudaGraphExecDestroy", InCapture::kAllowed, [&](Call& call) {
    const auto exec = exec_of(call, handle);
    if (!exec) return call.error();
    state().used_bytes[exec->device] -= exec->num_bytes;
    state().execs.erase(handle);  // launches that wait hold it
    return cudaSuccess;
  });
}
