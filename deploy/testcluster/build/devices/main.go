// A device plugin for GPUs that are not there: it registers with the kubelet, tells it of devices and says which ones a
// container was given, in the words of NVIDIA's plugin. Each device may be given out several times, as that plugin does
// under `sharing.timeSlicing`: its replicas are UUID::0, UUID::1 and so on, and a container hears the UUID alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const visible = "NVIDIA_VISIBLE_DEVICES"

type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
	mounts  []*api.Mount
	end     context.Context
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-p.end.Done():
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		var uuids []string
		for _, id := range container.DevicesIds {
			uuid, _, _ := strings.Cut(id, "::")
			if !slices.Contains(uuids, uuid) {
				uuids = append(uuids, uuid)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs:   map[string]string{visible: strings.Join(uuids, ",")},
			Mounts: p.mounts,
		})
	}
	return answer, nil
}

func main() {
	var uuids, mounts list
	resource := flag.String("resource", "nvidia.com/gpu", "name of the extended resource")
	replicas := flag.Int("replicas", 1, "how often each device is given out; 1 is without sharing")
	flag.Var(&uuids, "device", "UUID of a device; may be repeated")
	flag.Var(&mounts, "mount", "HOST:CONTAINER, a file that every container with a device gets, read-only; may be repeated")
	flag.Parse()
	end, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(end, *resource, newPlugin(end, uuids, *replicas, mounts)); err != nil {
		log.Fatal(err)
	}
}

func newPlugin(end context.Context, uuids list, replicas int, mounts list) *plugin {
	p := &plugin{end: end}
	for _, uuid := range uuids {
		for n := range replicas {
			id := uuid
			if replicas > 1 {
				id = fmt.Sprintf("%s::%d", uuid, n)
			}
			p.devices = append(p.devices, &api.Device{ID: id, Health: api.Healthy})
		}
	}
	for _, mount := range mounts {
		host, container, _ := strings.Cut(mount, ":")
		p.mounts = append(p.mounts, &api.Mount{HostPath: host, ContainerPath: container, ReadOnly: true})
	}
	return p
}

func serve(end context.Context, resource string, p *plugin) error {
	socket := filepath.Join(api.DevicePluginPath, strings.ReplaceAll(resource, "/", "-")+".sock")
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := register(end, resource, filepath.Base(socket)); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-end.Done():
		server.Stop()
		return nil
	}
}

func register(end context.Context, resource, socket string) error {
	kubelet, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	about := &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource}
	_, err = api.NewRegistrationClient(kubelet).Register(end, about)
	return err
}
