// The Python module openxpu._distributed: ProcessGroupXCCL and the flight recorder. Importing it registers
// c10d's operators for xpu. Calls that may wait release the GIL; c10::DistBackendError becomes
// torch.distributed's exception.
#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/functional.h>

#include "backend.h"
#include "mpi_transport.h"
#include "recorder.h"

namespace {

using c10d::control_plane::Request;
using c10d::control_plane::Response;

// Pages of the processes' debug server, which asks for them by NCCL's names.
void add_pages() {
    const auto asks = [](const Request &request, const char *name, bool otherwise) {
        const auto value = request.getParam(name);
        return value.empty() ? otherwise : value == "true";
    };
    const auto add = [](const char *name, const std::function<void(const Request &, Response &)> &answer) {
        const auto known = c10d::control_plane::getHandlerNames();
        if (std::find(known.begin(), known.end(), name) == known.end())
            c10d::control_plane::registerHandler(name, answer);
    };
    add("dump_nccl_trace_pickle", [asks](const Request &request, Response &response) {
        response.setContent(openxpu::Recorder::get().dump(asks(request, "includecollectives", true),
                                                          asks(request, "includestacktraces", true),
                                                          asks(request, "onlyactive", false)),
                            "application/octet-stream");
    });
    add("dump_nccl_trace_json", [asks](const Request &request, Response &response) {
        const pybind11::gil_scoped_acquire lock;
        const auto dump = pybind11::module_::import("openxpu._flight_recorder").attr("dump_json");
        const auto text = dump(asks(request, "includecollectives", true), asks(request, "onlyactive", false));
        response.setContent(text.cast<std::string>(), "application/json");
    });
}

} // namespace

PYBIND11_MODULE(_distributed, m) {
    add_pages();
    using openxpu::CollectiveBackend;
    using openxpu::CollectiveOptions;
    using Options = c10::intrusive_ptr<CollectiveOptions>;

    pybind11::module_::import("torch._C._distributed_c10d"); // has the base classes
    const auto copy = [](const CollectiveOptions &options, const pybind11::object &) {
        return c10::make_intrusive<CollectiveOptions>(options);
    };
    pybind11::class_<CollectiveOptions, Options, c10d::Backend::Options>(m, "Options")
        .def(pybind11::init<bool>(), pybind11::arg("is_high_priority_stream") = false)
        .def_readwrite("is_high_priority_stream", &CollectiveOptions::is_high_priority_stream)
        .def("__deepcopy__", copy); // split_group copies a parent's

    const auto dump = [](bool entries, bool stacks, bool only_active) {
        std::string bytes;
        {
            const pybind11::gil_scoped_release others_go_on;
            bytes = openxpu::Recorder::get().dump(entries, stacks, only_active);
        }
        return pybind11::bytes(bytes);
    };
    m.def("dump_trace", dump, pybind11::arg("entries"), pybind11::arg("stacks"),
          pybind11::arg("only_active"));
    m.def("reset_trace", [] { openxpu::Recorder::get().reset(); });

    using Transport = openxpu::MpiTransport;
    const auto without_lock = pybind11::call_guard<pybind11::gil_scoped_release>();
    m.def("is_busy", CollectiveBackend::any_is_busy, without_lock);
    m.def("leave_all", CollectiveBackend::leave_all, without_lock);
    m.def("finish_dumps", openxpu::Dumps::finish, without_lock);
    m.def("load_mpi", openxpu::load_mpi, pybind11::arg("path"));
    m.def(
        "start_mpi",
        [](std::chrono::milliseconds timeout) {
            const auto world = openxpu::start_mpi(timeout);
            return std::make_tuple(world.rank, world.size, std::string(world.library), world.is_foreign);
        },
        pybind11::arg("timeout"), without_lock);
    m.def("broadcast_by_mpi", openxpu::broadcast_by_mpi, pybind11::arg("text"), pybind11::arg("timeout"),
          without_lock);
    m.def(
        "end_mpi",
        [](bool in_order) {
            openxpu::Dumps::end_watching();
            openxpu::mpi().end(in_order);
        },
        pybind11::arg("in_order"), without_lock);
    pybind11::class_<Transport, c10::intrusive_ptr<Transport>, c10d::Backend>(m, "MpiTransport")
        .def(pybind11::init([](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                               std::chrono::milliseconds timeout) {
                 return c10::make_intrusive<Transport>(store, rank, size, timeout);
             }),
             pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"), pybind11::arg("timeout"),
             without_lock);

    pybind11::class_<CollectiveBackend, c10::intrusive_ptr<CollectiveBackend>, c10d::Backend>(
        m, "ProcessGroupXCCL")
        .def(pybind11::init([](c10::intrusive_ptr<c10d::Backend> transport,
                               c10::intrusive_ptr<c10d::Store> store, Options options,
                               CollectiveBackend::Connect connect) {
                 return c10::make_intrusive<CollectiveBackend>(std::move(transport), std::move(store),
                                                               std::move(options), std::move(connect));
             }),
             pybind11::arg("transport"), pybind11::arg("store"), pybind11::arg("options"),
             pybind11::arg("connect"))
        .def_property_readonly("options", &CollectiveBackend::options)
        .def_property_readonly("_bytes_through_memory", &CollectiveBackend::bytes_through_memory)
        // torch.distributed calls it on ranks that a new group leaves out: NCCL's splitting takes all of
        // them.
        .def(
            "perform_nocolor_split", [](CollectiveBackend &, const c10::Device &) {},
            pybind11::arg("device"));
}
